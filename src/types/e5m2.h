// SPDX-License-Identifier: Apache-2.0
// OCP E5M2: bias 15, Inf = S.11111.00, NaN = S.11111.{01,10,11}, max 57344, smallest normal 2^-14, smallest subnormal
// 2^-16.
#pragma once

#include "types/small_float.h"

namespace tessera {

struct E5m2 {
  using Storage = uint8_t;
  using Bits = SmallFloat<5, 2, SmallFloatForm::kIeee>;
  static constexpr int kBits = 8, kMantissaBits = 2, kMinExponent = Bits::kMinExponent;
  static constexpr double kMax = 57344.0;
  TS_HOST_DEVICE static Storage encode(float x, bool saturate = true) {
    return static_cast<Storage>(Bits::encode(x, saturate));
  }
  TS_HOST_DEVICE static float decode(Storage code) { return Bits::decode(code); }
};

}  // namespace tessera
