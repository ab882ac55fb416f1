// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "op/reference.h"
#include "op/whole_numbers.h"
#include "ops/reduce/reduce.h"

namespace tessera {

// Sums err by the accumulator, relative to the sum of magnitudes; squares and the mean's quotient add a rounding or
// two. Extremes are exact.
std::vector<double> reduce_errors(const Problem& p, std::span<const Dense> in, const Dense& y, const Roundings& r) {
  const std::string fn = p.attrs.word("fn");
  std::vector<double> e(y.v.size(), 0.0);
  if (fn == "max" || fn == "min" || is_whole(p.in[0].type)) return e;
  std::vector<Dense> magnitudes = {in[0]};
  for (double& v : magnitudes[0].v) v = std::fabs(v);
  const Dense sums = compute_reference(reduce_op(), p, magnitudes)[0];
  for (size_t i = 0; i < e.size(); ++i) e[i] = (r.sum(p.in[0].shape.back()) + 3 * r.unit()) * sums.v[i];
  return e;
}

}  // namespace tessera
