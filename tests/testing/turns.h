// SPDX-License-Identifier: Apache-2.0
// How often tests of threads and streams make their calls: enough to see a fault that shows at once, and with
// TESSERA_TURNS=10000 also one that shows rarely (CONTRIBUTING.md).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace tessera {

// The calls of one test, all its threads together: `usual`, or TESSERA_TURNS where that is more.
inline int turns(int usual) {
  const char* const asked = std::getenv("TESSERA_TURNS");
  if (asked == nullptr) return usual;
  constexpr int kMost = 10'000'000;
  const std::string_view text = asked;
  int count = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), count);
  if (error != std::errc() || end != text.end() || count < 1 || count > kMost) {
    ADD_FAILURE() << "TESSERA_TURNS is '" << text << "'; a number from 1 to " << kMost << " is wanted";
    return usual;
  }
  return std::max(usual, count);
}

}  // namespace tessera
