// SPDX-License-Identifier: Apache-2.0
// How many different names of kernels, layers and graphs one file may hold: more than any program has. Each is matched
// with some hundred rules and stands in tables, so that readers of every format have this limit.
#pragma once

#include <string_view>
#include <unordered_set>

#include "base/status.h"

namespace tessera {

inline constexpr size_t kMostNames = 50'000;

inline Status too_many_names() {
  return bad_input(cat("holds more than ", kMostNames, " different names of kernels and layers"));
}

class DifferentNames {
 public:
  // Contract: the text outlives this.
  Status add(std::string_view name) {
    if (!name.empty()) seen_.insert(name);
    return seen_.size() > kMostNames ? too_many_names() : Status{};
  }

 private:
  std::unordered_set<std::string_view> seen_;
};

}  // namespace tessera
