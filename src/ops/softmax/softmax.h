// SPDX-License-Identifier: Apache-2.0
// y[r,c] = exp(x[r,c] - max_r) / sum_c exp(x[r,c] - max_r), over the last axis; all other axes are rows.
// Maximum and sum are fp32 or better in every variant. A row of nothing but minus infinity gives zeros, not NaN: it is
// the row of an attention without keys, which gives 0 where it is recognised too (ops/attention/attention.h).
#pragma once

#include "op/op.h"

namespace tessera {

struct SoftmaxProblem {
  int64_t rows = 0, cols = 0, row_stride = 0;  // y is dense
  QuantType x, y;

  // Contract: x has uniform rows (StridedInputs::kRows).
  static SoftmaxProblem of(const Problem& p);
};

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> softmax_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                   const Roundings& roundings);

}  // namespace tessera
