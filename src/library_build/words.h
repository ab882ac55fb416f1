// SPDX-License-Identifier: Apache-2.0
// Words and numbers of the caller's structs as the rooms read them.
#pragma once

#include <string>
#include <vector>

#include "assemble/model_words.h"
#include "base/status.h"
#include "library/structs.h"
#include "library_build/job.h"

namespace tessera {

// A list of the caller's words. `name`: of the field.
inline Result<std::vector<std::string>> words_of(const char* name, const char* const* words, size_t count) {
  if (count > 0) TS_TRY(check_argument(words, name));
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) {
    if (words[i] == nullptr) return usage_error(cat(name, "[", i, "] is NULL"));
    all.emplace_back(words[i]);
  }
  return all;
}

inline Status check_number(const char* name, int64_t number, int64_t most) {
  if (number >= 0 && number <= most) return {};
  return usage_error(cat(name, " is ", number, ": 0 to ", most));
}

// How a model is read: fields that tess_build_options and tess_sensitivity_options have by the same names.
template <class Options>
Status take_model_words(const Options& o, ModelFlags& f) {
  f.family = word(o.family);
  TS_ASSIGN(f.shapes, words_of("shapes", o.shapes, o.shape_count));
  TS_ASSIGN(f.states, words_of("states", o.states, o.state_count));
  TS_ASSIGN(f.io, words_of("io", o.io, o.io_count));
  TS_ASSIGN(f.sizes, words_of("sizes", o.sizes, o.size_count));
  if (o.random == nullptr) return {};
  TS_TRY(check_number("random", *o.random, INT64_MAX));
  f.random = *o.random;
  return {};
}

}  // namespace tessera
