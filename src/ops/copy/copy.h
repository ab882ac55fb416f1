// SPDX-License-Identifier: Apache-2.0
// y = x, dense and in y's type: materialises views (transposes, slices, patches) and converts types (casts, quantizes
// with y's static scale). Floats become integers towards zero. The boundary op of CUDA plans: the caller's buffers are
// read and written through it.
#pragma once

#include "op/op.h"

namespace tessera {

struct CopyProblem {
  Shape shape, strides;  // strides of x, over the shape; y is dense
  QuantType x, y;

  static CopyProblem of(const Problem& p);
  // The same elements with adjacent axes merged wherever x allows it, and axes of size 1 dropped: at most as many axes,
  // same order.
  CopyProblem merged() const;
};

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> copy_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                const Roundings& roundings);

}  // namespace tessera
