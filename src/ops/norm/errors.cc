// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/parallel.h"
#include "ops/norm/norm.h"

namespace tessera {
namespace {

// What a row's statistics are, and what roundings may do to them.
struct RowStatistics {
  double mean = 0, inverse = 0;
  double moved = 0;          // the mean's error
  double inverse_error = 0;  // relative
};

// Roundings of a two-pass norm. u: one rounding; s: a sum of `cols` terms, relative to the sum of their magnitudes.
//   mean is off by m = s mean|x| + u |mean|; a difference d = x - mean by m + u |d|; var by 2 m mean|d| + m^2 + (s +
//   2u) var 1 / sqrt(var + eps) by half of var's relative error + 4u (quotient, sum, root, reciprocal, each possibly
//   two units on a GPU)
RowStatistics statistics_of(const NormProblem& n, const double* x, double u, double s) {
  const double cols = static_cast<double>(n.cols);
  RowStatistics row;
  double mean_abs = 0, var = 0, mean_d = 0;
  for (int64_t i = 0; i < n.cols; ++i) row.mean += x[i] / cols, mean_abs += std::fabs(x[i]) / cols;
  if (n.kind == NormKind::kRms) row.mean = 0;
  for (int64_t i = 0; i < n.cols; ++i)
    var += (x[i] - row.mean) * (x[i] - row.mean) / cols, mean_d += std::fabs(x[i] - row.mean) / cols;
  row.moved = n.kind == NormKind::kRms ? 0 : s * mean_abs + u * std::fabs(row.mean);
  row.inverse = 1 / std::sqrt(var + static_cast<double>(n.eps));
  const double var_error = 2 * row.moved * mean_d + row.moved * row.moved + (s + 2 * u) * var;
  row.inverse_error = 0.5 * var_error / (var + static_cast<double>(n.eps)) + 6 * u;
  return row;
}

}  // namespace

// A result is the mean of `group` rows (1 unless pooled): the mean of their errors, and the sum's own, relative to the
// mean of their magnitudes.
std::vector<double> norm_errors(const Problem& p, std::span<const Dense> in, const Dense& y,
                                const Roundings& roundings) {
  const NormProblem n = NormProblem::of(p);
  const double u = roundings.unit(), s = roundings.sum(n.cols), group = static_cast<double>(n.group);
  // Products by 1 / sqrt(var) and by the gain, which may be divided by the result's scale before; pooled also 1 / rows,
  // its product, and the sum.
  const double products = n.pooled ? 5 * u + roundings.sum(n.group) : 3 * u;
  std::vector<double> e(y.v.size(), 0.0);
  parallel_for(n.rows / n.group, 16, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      double* errors = e.data() + g * n.cols;
      for (int64_t r = g * n.group; r < (g + 1) * n.group; ++r) {
        const double* x = in[0].v.data() + r * n.cols;
        const RowStatistics row = statistics_of(n, x, u, s);
        for (int64_t i = 0; i < n.cols; ++i) {
          const double d = std::fabs(x[i] - row.mean);
          errors[i] += row.inverse * (row.moved + u * d + d * (row.inverse_error + products)) / group;
        }
      }
      for (int64_t i = 0; i < n.cols; ++i) {
        const double gain = n.has_gain ? in[1].v[static_cast<size_t>(i)] : 1;
        // A shift may have been multiplied by the result's scale before it is added.
        const double shift = n.has_shift ? std::fabs(in[2].v[static_cast<size_t>(i)]) : 0;
        errors[i] = std::fabs(gain) * errors[i] + u * (std::fabs(y.v[static_cast<size_t>(g * n.cols + i)]) + shift);
      }
    }
  });
  return e;
}

}  // namespace tessera
