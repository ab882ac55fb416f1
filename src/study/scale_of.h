// SPDX-License-Identifier: Apache-2.0
// Scales of a tensor in host memory, by element.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/problem.h"

namespace tessera {

// Scales of a tensor, both levels multiplied, by element in row order.
class ScaleOf {
 public:
  explicit ScaleOf(const TensorView& t)
      : type_(t.desc->type), cols_(t.desc->shape.empty() ? 1 : std::max<int64_t>(1, t.desc->shape.back())) {
    const int64_t rows = elements(t.desc->shape) / cols_;
    first_ = numbers(type_.scale, t.scale, rows);
    second_ = numbers(type_.scale2, t.scale2, rows);
  }
  double at(int64_t i) const {
    double s = 1;
    if (!first_.empty()) s *= first_[static_cast<size_t>(scale_index(type_.scale, i / cols_, i % cols_, cols_))];
    if (!second_.empty()) s *= second_[static_cast<size_t>(scale_index(type_.scale2, i / cols_, i % cols_, cols_))];
    return s;
  }

 private:
  std::vector<double> numbers(const ScaleLevel& level, const void* data, int64_t rows) const {
    if (level.granularity == Granularity::kNone || data == nullptr) return {};
    std::vector<double> out(static_cast<size_t>(scale_count(level, rows, cols_)));
    info(level.element).decode_f64(data, 0, static_cast<int64_t>(out.size()), out.data());
    return out;
  }
  QuantType type_;
  int64_t cols_;
  std::vector<double> first_, second_;
};

}  // namespace tessera
