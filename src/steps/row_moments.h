// SPDX-License-Identifier: Apache-2.0
// Folded norm: a norm between two linear layers that runs inside them. With w' = w diag(gain), each row of it less its
// mean (RMSNorm: as it is), and b' = b + w shift,
//   norm(x) w^T + b = (x w'^T) / deviation + b'
// deviation of a row of x: sqrt(var + eps); RMSNorm: sqrt(mean of squares + eps). What is left of the norm is a factor
// per row (step `normalise`). The layer before writes the moments of its rows as an extra result, f32:
//   m[..., g, 0]   mean of columns 64 g ... 64 g + 63 of the row (fewer in the last group)
//   m[..., g, 1]   sum of their squared distances from that mean
// No square of a mean is taken from a mean of squares: var = (sum of m[g][1] + n_g (m[g][0] - mean)^2) / n.
#pragma once

#include <cstdint>

#include "ir/attrs.h"

namespace tessera {

constexpr int64_t kMomentsGroup = 64;
constexpr int64_t moment_groups(int64_t cols) { return (cols + kMomentsGroup - 1) / kMomentsGroup; }

// The norm that a node's attributes state: "norm.kind" layer or rms, "norm.eps".
struct FoldedNorm {
  bool rms = false;
  float eps = 0;
  static FoldedNorm of(const Attrs& attrs);
};
inline constexpr const char* kFoldedKind = "norm.kind";
inline constexpr const char* kFoldedEps = "norm.eps";

// The moments of a row of numbers, 2 * moment_groups(cols) of them.
void take_moments(const double* row, int64_t cols, double* moments);
// 1 / deviation of a row of `cols` numbers, and how far fp32 may be from it, relatively, where the moments are as
// given.
double inverse_deviation(const double* moments, int64_t cols, const FoldedNorm& norm);
double inverse_deviation_error(const double* moments, int64_t cols, const FoldedNorm& norm);
// How far the moments of a row may be from the exact ones, whose numbers are each within their error: rounding in fp32
// is in it.
void moment_errors(const double* row, const double* errors, int64_t cols, double* moments);

}  // namespace tessera
