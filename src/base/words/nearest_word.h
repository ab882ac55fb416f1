// SPDX-License-Identifier: Apache-2.0
// The nearest known word to one that is unknown, for sentences about it.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// The known word that needs the fewest edits, where they are few enough to be a slip; else empty.
std::string nearest(const std::string& word, const std::vector<std::string>& known);
// "; did you mean X?", or nothing.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace tessera
