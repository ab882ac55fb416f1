// SPDX-License-Identifier: Apache-2.0
// rotary(angles, head, columns): the first `columns` columns of a row are heads of so many numbers each, turned by the
// angles of the row's token (ops/rotary/rotary.h). The first 2 r numbers of a head are pairs (i, i + r), the rest of it
// and the columns behind stay.
//   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin
// angles [..., rows, 2 r]: r cosines, then r sines. Rows repeat where they are fewer than the result's.
#pragma once

#include <cmath>

#include "ir/program.h"
#include "types/small_float.h"

namespace tessera {

struct RotaryStep {
  int64_t head = 0, columns = 0;
  int64_t pairs = 0;  // r
  // Contract: the step's shape rule found nothing. angle_cols: of the operand.
  static RotaryStep of(const Step& step, int64_t angle_cols) {
    return {static_cast<int64_t>(step.numbers[0]), static_cast<int64_t>(step.numbers[1]), angle_cols / 2};
  }
};

// One number of a pair, as kernels compute it: `sine` with its sign, negative for the first of the pair. The product is
// rounded, then the sum.
TS_HOST_DEVICE inline float rotated(float own, float other, float cosine, float sine) {
  return fmaf(own, cosine, other * sine);
}

}  // namespace tessera
