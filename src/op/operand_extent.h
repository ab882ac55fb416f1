// SPDX-License-Identifier: Apache-2.0
// How far an operand reaches in its storage.
#pragma once

#include "op/problem.h"

namespace tessera {

// Elements from the first to the last that the strides reach.
inline int64_t span_of(const Operand& o) {
  int64_t last = 0;
  for (size_t i = 0; i < o.shape.size(); ++i) {
    if (o.shape[i] == 0) return 0;
    last += (o.shape[i] - 1) * o.strides[i];
  }
  return last + 1;
}

}  // namespace tessera
