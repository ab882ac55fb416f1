// SPDX-License-Identifier: Apache-2.0
// OCP E4M3 (FN): bias 7, no Inf, NaN = S.1111.111, max 448, smallest normal 2^-6, smallest subnormal 2^-9.
#pragma once

#include "types/small_float.h"

namespace tessera {

struct E4m3 {
  using Storage = uint8_t;
  using Bits = SmallFloat<4, 3, SmallFloatForm::kFn>;
  static constexpr int kBits = 8, kMantissaBits = 3, kMinExponent = Bits::kMinExponent;
  static constexpr double kMax = 448.0;
  TS_HOST_DEVICE static Storage encode(float x, bool saturate = true) {
    return static_cast<Storage>(Bits::encode(x, saturate));
  }
  TS_HOST_DEVICE static float decode(Storage code) { return Bits::decode(code); }
};

}  // namespace tessera
