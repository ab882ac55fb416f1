// SPDX-License-Identifier: Apache-2.0
// OCP E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives (code + 8). No Inf and no NaN: everything beyond 6
// saturates, asked or not, and NaN becomes a zero of the other sign (what ml_dtypes does). Two codes share a byte, the
// even index in the low nibble; Storage holds one.
#pragma once

#include "types/small_float.h"

namespace tessera {

struct E2m1 {
  using Storage = uint8_t;
  using Bits = SmallFloat<2, 1, SmallFloatForm::kFinite>;
  static constexpr int kBits = 4, kMantissaBits = 1, kMinExponent = Bits::kMinExponent;
  static constexpr double kMax = 6.0;
  TS_HOST_DEVICE static Storage encode(float x, bool saturate = true) {
    return static_cast<Storage>(Bits::encode(x, saturate));
  }
  TS_HOST_DEVICE static float decode(Storage code) { return Bits::decode(code); }
};

}  // namespace tessera
