// SPDX-License-Identifier: Apache-2.0
// IEEE binary16. Bias 15, max 65504, smallest subnormal 2^-24. Saturating by default: engines never make an Inf out of
// a finite number.
#pragma once

#include "types/small_float.h"

namespace tessera {

struct F16 {
  using Storage = uint16_t;
  using Bits = SmallFloat<5, 10, SmallFloatForm::kIeee>;
  static constexpr int kBits = 16, kMantissaBits = 10, kMinExponent = Bits::kMinExponent;
  static constexpr double kMax = 65504.0;
  TS_HOST_DEVICE static Storage encode(float x, bool saturate = true) {
    return static_cast<Storage>(Bits::encode(x, saturate));
  }
  TS_HOST_DEVICE static float decode(Storage code) { return Bits::decode(code); }
};

}  // namespace tessera
