// SPDX-License-Identifier: Apache-2.0
// Walking strided tensors: fewer and longer axes first, then one innermost run after the other.
//   merge_axes(shape, strides);  StridedRuns runs(shape, strides);  for each run: runs.seek(i), runs.offset(operand),
//   ..., runs.next()
// A run is the last axis; an operand's step along it is strides.back().
#pragma once

#include <array>
#include <vector>

#include "ir/shape.h"

namespace tessera {

// Drops axes of size 1 and merges neighbours wherever every operand's strides allow it. At least one axis is left;
// order is kept.
void merge_axes(Shape& shape, std::vector<Shape>& strides);

// Strides of an operand over a result's axes, aligned at the last one as numpy does: 0 where it is broadcast.
Shape broadcast_strides(const Shape& shape, const Shape& strides, const Shape& result);

class StridedRuns {
 public:
  static constexpr size_t kFew = 16;  // axes without an allocation
  // Contract: one axis at least, at most kFew operands; shape and strides outlive this.
  StridedRuns(const Shape& shape, const std::vector<Shape>& strides);
  StridedRuns(const StridedRuns&) = delete;
  StridedRuns& operator=(const StridedRuns&) = delete;
  int64_t count() const { return count_; }
  int64_t length() const { return shape_.back(); }
  void seek(int64_t run);
  void next();
  int64_t offset(size_t operand) const { return offsets_[operand]; }

 private:
  const Shape& shape_;
  const std::vector<Shape>& strides_;
  int64_t count_ = 1;
  std::array<int64_t, kFew> few_at_{}, few_offsets_{};
  Shape many_at_;  // beyond kFew axes
  int64_t* at_;
  int64_t* offsets_;
};

}  // namespace tessera
