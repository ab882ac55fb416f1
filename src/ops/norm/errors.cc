// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/parallel.h"
#include "ops/norm/norm.h"

namespace tessera {

// Roundings of a two-pass norm, row by row. u: one rounding; s: a sum of `cols` terms, relative to the sum of their
// magnitudes.
//   mean is off by m = s mean|x| + u |mean|; a difference d = x - mean by m + u |d|; var by 2 m mean|d| + m^2 + (s +
//   2u) var 1 / sqrt(var + eps) by half of var's relative error + 4u (quotient, sum, root, reciprocal, each possibly
//   two units on a GPU)
std::vector<double> norm_errors(const Problem& p, std::span<const Dense> in, const Dense& y,
                                const Roundings& roundings) {
  const NormProblem n = NormProblem::of(p);
  const double u = roundings.unit(), s = roundings.sum(n.cols), cols = static_cast<double>(n.cols);
  std::vector<double> e(y.v.size());
  parallel_for(n.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double* x = in[0].v.data() + r * n.cols;
      double mean = 0, mean_abs = 0, var = 0, mean_d = 0;
      for (int64_t i = 0; i < n.cols; ++i) mean += x[i] / cols, mean_abs += std::fabs(x[i]) / cols;
      if (n.kind == NormKind::kRms) mean = 0;
      for (int64_t i = 0; i < n.cols; ++i)
        var += (x[i] - mean) * (x[i] - mean) / cols, mean_d += std::fabs(x[i] - mean) / cols;
      const double m = n.kind == NormKind::kRms ? 0 : s * mean_abs + u * std::fabs(mean);
      const double inverse = 1 / std::sqrt(var + static_cast<double>(n.eps));
      const double var_error = 2 * m * mean_d + m * m + (s + 2 * u) * var;
      const double inverse_error = 0.5 * var_error / (var + static_cast<double>(n.eps)) + 6 * u;
      for (int64_t i = 0; i < n.cols; ++i) {
        const double gain = n.has_gain ? in[1].v[static_cast<size_t>(i)] : 1;
        const double d = x[i] - mean, scaled = std::fabs(d * inverse * gain);
        const size_t at = static_cast<size_t>(r * n.cols + i);
        // A shift may have been multiplied by the result's scale before it is added.
        const double shift = n.has_shift ? std::fabs(in[2].v[static_cast<size_t>(i)]) : 0;
        e[at] = std::fabs(gain) * inverse * (m + u * std::fabs(d)) + scaled * (inverse_error + 3 * u) +
                u * (std::fabs(y.v[at]) + shift);
      }
    }
  });
  return e;
}

}  // namespace tessera
