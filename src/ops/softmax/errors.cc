// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "ops/softmax/softmax.h"

namespace tessera {

// x - max rounds to u |x - max|, which is the relative error of its exponential; the exponential itself adds 4u, the
// sum its own error, the quotient 2u (twice, where it is a reciprocal and a product). Results below the smallest normal
// f32 may be flushed to zero.
std::vector<double> softmax_errors(const Problem& p, std::span<const Dense> in, const Dense& y,
                                   const Roundings& roundings) {
  const SoftmaxProblem s = SoftmaxProblem::of(p);
  const double u = roundings.unit(), sum = roundings.sum(s.cols);
  std::vector<double> e(y.v.size());
  for (int64_t r = 0; r < s.rows; ++r) {
    const double* x = in[0].v.data() + r * s.cols;
    const double top = *std::max_element(x, x + s.cols);
    if (top == -INFINITY) continue;  // exactly 0
    double spread = 0;               // the sum's terms err too, weighted by themselves
    for (int64_t i = 0; i < s.cols; ++i) {
      const double weight = y.v[static_cast<size_t>(r * s.cols + i)];
      if (weight > 0) spread += weight * (top - x[i]);  // a masked score is -inf, and its weight exactly 0
    }
    for (int64_t i = 0; i < s.cols; ++i) {
      const size_t at = static_cast<size_t>(r * s.cols + i);
      e[at] = (y.v[at] > 0 ? y.v[at] * (u * (top - x[i] + spread) + 2 * 4 * u + sum + 4 * u) : 0) + 0x1p-126;
    }
  }
  return e;
}

}  // namespace tessera
