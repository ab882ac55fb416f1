// SPDX-License-Identifier: Apache-2.0
// y = x with some rows of one axis replaced by `new`: a KV cache takes the keys and values of this run.
//   y[.., r, ..] = new[.., r - a_b, ..]  for a_b <= r < a_b + rows(new),   else x[.., r, ..]       r along attr `axis`
//   a_b = clamp(at[b], 0, extent of the axis - rows(new))       all rows fit, whatever the number is
// `at` (i32, [1] or [batch]) is read while running; the batch is axis 0. Without it, attr `at` holds for all. x and y
// are dense and of one type, `new` may be strided and is converted as `copy` does. In place (OpInfo::in_place): where
// y's memory is x's, both have the same scale and only the new rows are written.
#pragma once

#include "op/op.h"

namespace tessera {

struct WriteProblem {
  Shape shape;                             // of x and y
  size_t axis = 0;                         // attr `axis`
  int64_t rows = 0, most = 0;              // of `new`; the last row that it may begin at
  int64_t row_elements = 0;                // of y: from one row of the axis to the next
  bool has_at = false;                     // input 2
  int64_t at = 0, at_stride = 0;           // attr `at`; elements between batch items, 0: one for all
  Shape new_shape, new_strides, new_in_y;  // strides of `new`, and of its elements in y
  QuantType x, fresh, y;                   // fresh: of `new`

  static WriteProblem of(const Problem& p);
  // The first of the rows that are replaced, where `at` is the number for this batch item.
  int64_t first_row(int64_t number) const { return number < 0 ? 0 : number < most ? number : most; }
};

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> write_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                 const Roundings& roundings);

}  // namespace tessera
