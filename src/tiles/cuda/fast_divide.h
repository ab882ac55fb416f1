// SPDX-License-Identifier: Apache-2.0
// Division of indices by a number that is known before a kernel starts: a multiplication and a shift instead of some
// twenty instructions.
//   n / d = (high 32 bits of n * multiplier + n) >> shift
//   multiplier = floor(2^32 * (2^shift - d) / d) + 1,   2^(shift-1) < d <= 2^shift
// Exact for 0 <= n < 2^31 and 1 <= d < 2^31: the sum of the two 31-bit terms fits in 32 bits.
#pragma once

#include <cstdint>

#include "types/small_float.h"

namespace tessera {

struct FastDivide {
  uint32_t divisor = 1, multiplier = 1, shift = 0;

  FastDivide() = default;
  explicit FastDivide(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  TS_HOST_DEVICE uint32_t quotient(uint32_t n) const {
#ifdef __CUDA_ARCH__
    return (__umulhi(n, multiplier) + n) >> shift;
#else
    return (static_cast<uint32_t>((uint64_t{n} * multiplier) >> 32) + n) >> shift;
#endif
  }
};

}  // namespace tessera
