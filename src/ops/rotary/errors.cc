// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/rotary/rotary.h"

namespace tessera {

// The operand's scale is one rounding, each product one, their sum one: at most 3 units of the products' magnitudes.
std::vector<double> rotary_errors(const Problem& p, std::span<const Dense> in, const Dense& y,
                                  const Roundings& roundings) {
  const RotaryProblem r = RotaryProblem::of(p);
  const double u = roundings.unit();
  const int64_t batches = p.in[1].shape[0];
  std::vector<double> e(y.v.size());
  for (int64_t head = 0; head < r.batch * r.tokens * r.heads; ++head) {
    const int64_t token = head / r.heads, row = batches == 1 ? token % r.tokens : token;
    const double* x = in[0].v.data() + head * r.head_size;
    double* error = e.data() + head * r.head_size;
    for (int64_t i = 0; i < r.head_size; ++i) error[i] = r.x.scaled() ? u * std::fabs(x[i]) : 0;
    for (int64_t i = 0; i < r.pairs; ++i) {
      const double x1 = x[r.first(i)], x2 = x[r.second(i)];
      const double cos = in[1].v[static_cast<size_t>(row * r.pairs + i)],
                   sin = in[2].v[static_cast<size_t>(row * r.pairs + i)];
      error[r.first(i)] = 3 * u * (std::fabs(x1 * cos) + std::fabs(x2 * sin));
      error[r.second(i)] = 3 * u * (std::fabs(x2 * cos) + std::fabs(x1 * sin));
    }
  }
  return e;
}

}  // namespace tessera
