// SPDX-License-Identifier: Apache-2.0
// y[...] = f over the last axis of x[..., c]; attr `fn`: mean sum max min sum_squares. Any strides: reducing another
// axis is reducing a permuted view.
#pragma once

#include <string>

#include "op/op.h"

namespace tessera {

const OpInfo& reduce_op();

struct ReduceProblem {
  std::string fn;
  Shape shape;                            // of the result
  Shape strides;                          // of x over the result's axes
  int64_t length = 0, length_stride = 0;  // the reduced axis
  QuantType x, y;

  static ReduceProblem of(const Problem& p);
};

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> reduce_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                  const Roundings& roundings);

}  // namespace tessera
