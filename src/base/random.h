// SPDX-License-Identifier: Apache-2.0
// Numbers that look random and are the same everywhere: splitmix64, whose k-th number is mix64(seed + k * kMixStep).
#pragma once

#include <cstdint>

namespace tessera {

inline constexpr uint64_t kMixStep = 0x9e3779b97f4a7c15u;

constexpr uint64_t mix64(uint64_t x) {
  x += kMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace tessera
