// SPDX-License-Identifier: Apache-2.0
// JSON of files from outside. A few bytes of text can ask for a hundred times their size in memory and for
// any depth of recursion: both are bounded here. A key that an object repeats is an error, since readers disagree on
// which one counts. No exception leaves this function.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace tessera {

struct JsonLimits {
  size_t text_bytes = size_t{100} << 20;
  size_t depth = 32;
  size_t values = size_t{4} << 20;  // of every kind, nested ones included: about 100 bytes each in memory
};

// The error says what is wrong and, for text that is no JSON, at which byte.
Result<nlohmann::json> parse_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace tessera
