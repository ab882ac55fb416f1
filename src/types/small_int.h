// SPDX-License-Identifier: Apache-2.0
// Signed integers of at most 8 bits, two's complement: -2^(kWidth-1) ... 2^(kWidth-1) - 1. Rounds to nearest even,
// always saturates; NaN becomes 0. i4: two codes share a byte, the even index in the low nibble; Storage holds one.
#pragma once

#include "types/small_float.h"

namespace tessera {

template <int kWidth>
struct SmallInteger {
  using Storage = uint8_t;
  static constexpr int kBits = kWidth, kMantissaBits = 0, kMinExponent = 0;
  static constexpr bool kInteger = true;
  static constexpr int kLowest = -(1 << (kWidth - 1)), kHighest = (1 << (kWidth - 1)) - 1;
  static constexpr double kMax = kHighest;
  TS_HOST_DEVICE static Storage encode(float x, bool = true) {
    // 1.5 * 2^23 has a last place of 1: the adder rounds, and the sum's low bits are the two's complement.
    const float high = x > kHighest ? kHighest : x, c = high < kLowest ? kLowest : high;
    const uint32_t code = bits_of(c + 0x1.8p23f) & ((1u << kWidth) - 1);
    return static_cast<Storage>(blend_below(0x7f800000u, bits_of(x) & 0x7fffffffu, 0, code));
  }
  // From f64 in one rounding: 2.5 + 2^-40 is 3.
  static Storage encode(double x, bool = true) {
    const double number = x == x ? x : 0.0, high = number > kHighest ? kHighest : number,
                 c = high < kLowest ? kLowest : high;
    return static_cast<Storage>(std::bit_cast<uint64_t>(c + 0x1.8p52) & ((1u << kWidth) - 1));
  }
  TS_HOST_DEVICE static float decode(Storage code) {
    constexpr int kSign = 1 << (kWidth - 1);
    return static_cast<float>(((code & ((1 << kWidth) - 1)) ^ kSign) - kSign);
  }
};
using I8 = SmallInteger<8>;
using I4 = SmallInteger<4>;

}  // namespace tessera
