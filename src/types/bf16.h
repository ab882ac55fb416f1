// SPDX-License-Identifier: Apache-2.0
// bfloat16: the upper half of an f32. Bias 127, max 0x7F7F.
#pragma once

#include "types/small_float.h"

namespace tessera {

struct Bf16 {
  using Storage = uint16_t;
  using Bits = SmallFloat<8, 7, SmallFloatForm::kIeee>;
  static constexpr int kBits = 16, kMantissaBits = 7, kMinExponent = Bits::kMinExponent;
  static constexpr double kMax = 3.3895313892515355e38;
  TS_HOST_DEVICE static Storage encode(float x, bool saturate = true) {
    return static_cast<Storage>(Bits::encode(x, saturate));
  }
  TS_HOST_DEVICE static float decode(Storage code) { return Bits::decode(code); }
};

}  // namespace tessera
