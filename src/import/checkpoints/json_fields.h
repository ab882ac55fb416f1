// SPDX-License-Identifier: Apache-2.0
// Fields of a JSON object that a person or a tool wrote: absent or null ones have a fallback, one of another kind than
// asked for is an error that names it. Contract: `object` is an object.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera {

Result<std::string> json_word(const nlohmann::json& object, const char* key, const std::string& fallback);
Result<int64_t> json_integer(const nlohmann::json& object, const char* key, int64_t fallback);
Result<double> json_number(const nlohmann::json& object, const char* key, double fallback);
Result<bool> json_truth(const nlohmann::json& object, const char* key, bool fallback);
Result<std::vector<std::string>> json_words(const nlohmann::json& object, const char* key);

}  // namespace tessera
