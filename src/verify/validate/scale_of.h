// SPDX-License-Identifier: Apache-2.0
// Codes and scales of a tensor in host memory, each for itself.
#pragma once

#include <algorithm>
#include <vector>

#include "op/reference.h"

namespace tessera {

// One level of scales; empty where the tensor has none.
inline std::vector<double> scale_numbers(const TensorView& t, const ScaleLevel& level, const void* data) {
  if (level.granularity == Granularity::kNone || data == nullptr) return {};
  const int64_t cols = t.desc->shape.empty() ? 1 : std::max<int64_t>(1, t.desc->shape.back());
  std::vector<double> out(static_cast<size_t>(scale_count(level, elements(t.desc->shape) / cols, cols)));
  info(level.element).decode_f64(data, 0, static_cast<int64_t>(out.size()), out.data());
  return out;
}

// Scales of a tensor, both levels multiplied, by element in row order.
class ScaleOf {
 public:
  explicit ScaleOf(const TensorView& t)
      : type_(t.desc->type), cols_(t.desc->shape.empty() ? 1 : std::max<int64_t>(1, t.desc->shape.back())) {
    first_ = scale_numbers(t, type_.scale, t.scale);
    second_ = scale_numbers(t, type_.scale2, t.scale2);
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
