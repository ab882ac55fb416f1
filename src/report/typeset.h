// SPDX-License-Identifier: Apache-2.0
// Plain text as HTML that reads well: escaped, a number and its unit kept on one line, signs instead of letters.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

std::string typeset(std::string_view text);           // "1.59x" becomes 1.59 and a times sign
std::string typeset_number(const std::string& text);  // with a minus as wide as a plus; "-" alone is a dash

}  // namespace tessera
