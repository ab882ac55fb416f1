// SPDX-License-Identifier: Apache-2.0
// The scales of an operand that multiply sums: one per row of it (token, channel), one for the tensor. Any float
// element, at either level; scales of blocks are not among them.
#pragma once

#include "op/problem.h"

namespace tessera {

class SumScales {
 public:
  explicit SumScales(const TensorView& t) {
    const QuantType& type = t.desc->type;
    add(type.scale, t.scale);
    add(type.scale2, t.scale2);
  }
  bool any() const { return any_; }
  float of_tensor() const { return tensor_; }
  // Those of rows [first, first + n), in `out`; null where rows have none of their own.
  const float* of_rows(int64_t first, int64_t n, float* out) const {
    if (rows_ == nullptr) return nullptr;
    info(element_).decode(rows_, first, n, out);
    return out;
  }

 private:
  void add(const ScaleLevel& level, const void* scales) {
    const bool tensor = level.granularity == Granularity::kTensor;
    if (!tensor && level.granularity != Granularity::kToken && level.granularity != Granularity::kChannel) return;
    any_ = true;
    if (tensor) {
      float scale;
      info(level.element).decode(scales, 0, 1, &scale);
      tensor_ *= scale;
    } else {
      rows_ = scales, element_ = level.element;
    }
  }

  bool any_ = false;
  float tensor_ = 1;
  const void* rows_ = nullptr;
  Element element_ = Element::f32;
};

}  // namespace tessera
