// SPDX-License-Identifier: Apache-2.0
// OCP E8M0: code b is 2^(b - 127), b = 0 ... 254; 0xFF is NaN. No sign, no zero; code 0 is 2^-127, a subnormal f32.
// The cast is that of ml_dtypes: to the nearer power, the middle (1.5 * 2^k) upwards; between 2^-127 and 2^-126 always
// upwards, below 2^-127 to code 0; zero, negative numbers and NaN become NaN. Scales of MX blocks are not made by this
// cast but by a named rule: power_rule.h.
#pragma once

#include "types/small_float.h"

namespace tessera {

struct E8m0 {
  using Storage = uint8_t;
  static constexpr int kBits = 8, kMantissaBits = 0, kMinExponent = -127;
  static constexpr double kMax = 0x1p127;
  static constexpr uint32_t kNan = 0xff;
  TS_HOST_DEVICE static Storage encode(float x, bool saturate = true) {
    const uint32_t in = bits_of(x);
    // Adding half a step of the fraction carries into the exponent; among f32's subnormals one less leaves 2^-127
    // itself where it is.
    uint32_t code = (in + (in < 0x800000u ? 0x3fffffu : 0x400000u)) >> 23;
    code = saturate && code > 0xfe ? 0xfe : code;
    const bool number = in - 1 < 0x7f800000u;  // positive, up to Inf
    return static_cast<Storage>(number ? code : kNan);
  }
  TS_HOST_DEVICE static float decode(Storage code) {
    const uint32_t number = code == 0 ? 0x400000u : static_cast<uint32_t>(code) << 23;
    return float_of(code == kNan ? 0x7fc00000u : number);
  }
};

}  // namespace tessera
