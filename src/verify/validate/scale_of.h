// SPDX-License-Identifier: Apache-2.0
// Scales of a tensor in host memory, element by element.
#pragma once

#include <algorithm>
#include <vector>

#include "op/reference.h"

namespace tessera {

// Scales of a tensor, both levels multiplied, by element in row order.
class ScaleOf {
 public:
  explicit ScaleOf(const TensorView& t)
      : type_(t.desc->type), cols_(t.desc->shape.empty() ? 1 : std::max<int64_t>(1, t.desc->shape.back())) {
    first_ = first_scales(t);
    second_ = second_scales(t);
  }
  double at(int64_t i) const {
    double s = 1;
    if (!first_.empty()) s *= first_[static_cast<size_t>(scale_index(type_.scale, i / cols_, i % cols_, cols_))];
    if (!second_.empty()) s *= second_[static_cast<size_t>(scale_index(type_.scale2, i / cols_, i % cols_, cols_))];
    return s;
  }

 private:
  QuantType type_;
  int64_t cols_;
  std::vector<double> first_, second_;
};

}  // namespace tessera
