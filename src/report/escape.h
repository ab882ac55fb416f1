// SPDX-License-Identifier: Apache-2.0
// Text of other people's files, made safe to stand in a report. Control characters become '?', bytes that are no UTF-8
// become U+FFFD: names of layers and kernels are whatever somebody wrote into a file.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Valid UTF-8 without control characters; a line break becomes a blank.
std::string clean_text(std::string_view text);
// No longer than `most` characters: the middle is left out, since names differ at both ends.
std::string cut_middle(std::string_view text, size_t most);

std::string html_text(std::string_view text);      // of an element or of an attribute in double quotes
std::string markdown_text(std::string_view text);  // inside a line
std::string markdown_line(std::string_view text);  // that begins one
// A code span; `in_table`: strokes are escaped too.
std::string markdown_code(std::string_view text, bool in_table);

}  // namespace tessera
