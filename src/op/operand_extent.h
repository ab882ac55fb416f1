// SPDX-License-Identifier: Apache-2.0
// How far operands reach: rows and columns of a shape as scales count them, elements that strides span.
#pragma once

#include <algorithm>

#include "op/problem.h"

namespace tessera {

inline int64_t cols_of(const Shape& shape) { return shape.empty() ? 1 : shape.back(); }
inline int64_t rows_of(const Shape& shape) { return elements(shape) / std::max<int64_t>(1, cols_of(shape)); }

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
