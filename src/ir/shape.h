// SPDX-License-Identifier: Apache-2.0
// Shapes are lists of sizes, all known: the batch is fixed at build. Strides count elements; a stride of 0 repeats (an
// expanded axis).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

using Shape = std::vector<int64_t>;

int64_t elements(const Shape& shape);
std::string to_string(const Shape& shape);  // "[2,197,768]"
// A tensor as a matrix: the last axis is its columns, all others are its rows. A scalar is 1 x 1.
int64_t cols_of(const Shape& shape);
int64_t rows_of(const Shape& shape);
Shape dense_strides(const Shape& shape);
// Axes of size 1 may have any stride.
bool is_dense(const Shape& shape, const Shape& strides);
// True where all axes but the last fold into one row index with one stride, and the last axis is contiguous; then the
// shape is rows x cols.
struct RowView {
  bool uniform = false;
  int64_t rows = 1, cols = 1, row_stride = 1;
};
RowView as_rows(const Shape& shape, const Shape& strides);
// Strides of `shape` over the elements that (`from`, `strides`) addresses, in the same order; empty where no such
// strides exist (only a copy could do it). A scalar has empty strides too, and always succeeds.
bool reshape_strides(const Shape& from, const Shape& strides, const Shape& shape, Shape* result);

}  // namespace tessera
