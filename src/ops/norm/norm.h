// SPDX-License-Identifier: Apache-2.0
// Row-wise LayerNorm or RMSNorm, then the program (most often: quantize with a static scale).
//   n[r,c] = (x[r,c] - mean_r) / sqrt(var_r + eps) * gain[c] + shift[c]     RMSNorm: mean_r = 0, var_r = mean of
//   squares
// attr `pooled` = 1: the mean of each group of rows, the axis before the last, comes before the program; that axis is
// gone from the result:
//   y[g,c] = (sum over r of (x[g,r,c] - mean_gr) / sqrt(var_gr + eps)) / rows * gain[c] + shift[c]
// x may have any strides but a contiguous last axis: rows inside a wider matrix, heads of a QKV matrix.
// Statistics and sums are fp32 or better in every variant; var is taken about the mean (two passes over the row), never
// as E[x^2] - mean^2.
#pragma once

#include "op/op.h"

namespace tessera {

enum class NormKind : uint8_t { kLayer, kRms };

struct NormProblem {
  int64_t rows = 0, cols = 0;
  Shape lead, lead_strides;  // x's axes but the last, merged wherever their strides allow it (uniform rows: one axis)
  NormKind kind = NormKind::kLayer;          // attr `kind`: "layer" or "rms"
  float eps = 0;                             // attr `eps`
  bool has_gain = false, has_shift = false;  // inputs 1 and 2
  bool pooled = false;                       // attr `pooled`: 0 or 1
  int64_t group = 1;  // rows that one row of the result is made of: x's axis before the last where pooled
  QuantType x, y;
  const Program* then = nullptr;

  static NormProblem of(const Problem& p);
};

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> norm_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                const Roundings& roundings);

}  // namespace tessera
