// SPDX-License-Identifier: Apache-2.0
#include "import/checkpoints/json_fields.h"

namespace tessera {

Result<std::string> json_word(const nlohmann::json& object, const char* key, const std::string& fallback) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  if (!it->is_string()) return bad_input(cat("'", key, "' is not a word"));
  return it->get<std::string>();
}

Result<int64_t> json_integer(const nlohmann::json& object, const char* key, int64_t fallback) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  if (!it->is_number_integer()) return bad_input(cat("'", key, "' is not a whole number"));
  return it->get<int64_t>();
}

Result<std::vector<std::string>> json_words(const nlohmann::json& object, const char* key) {
  std::vector<std::string> words;
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return words;
  if (!it->is_array()) return bad_input(cat("'", key, "' is not a list"));
  for (const auto& word : *it) {
    if (!word.is_string()) return bad_input(cat("'", key, "' holds something that is no word"));
    words.push_back(word.get<std::string>());
  }
  return words;
}

Result<double> json_number(const nlohmann::json& object, const char* key, double fallback) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  if (!it->is_number()) return bad_input(cat("'", key, "' is not a number"));
  return it->get<double>();
}

Result<bool> json_truth(const nlohmann::json& object, const char* key, bool fallback) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  if (!it->is_boolean()) return bad_input(cat("'", key, "' is not true or false"));
  return it->get<bool>();
}

}  // namespace tessera
