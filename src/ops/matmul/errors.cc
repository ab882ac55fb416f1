// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/matmul/matmul.h"
#include "ops/reference.h"

namespace tessera {

// The sum errs relative to the sum of its products' magnitudes; its product with the scales of x and w adds two
// roundings, and their own product one. Products below the smallest normal f32 may be lost.
std::vector<double> matmul_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                  const Roundings& r) {
  std::vector<Dense> magnitudes = {in[0], in[1]};
  for (Dense& d : magnitudes) {
    for (double& v : d.v) v = std::fabs(v);
  }
  Problem plain = p;
  plain.then = {};
  const Dense sums = compute_reference(*find_op("matmul"), plain, magnitudes)[0];
  const int64_t k = p.in[0].shape.back();
  std::vector<double> e(sums.v.size());
  for (size_t i = 0; i < e.size(); ++i) {
    e[i] = (2 * r.operand() + r.sum(k)) * sums.v[i] + 3 * r.unit() * std::fabs(before.v[i]) +
           static_cast<double>(k) * 0x1p-126;
  }
  return e;
}

}  // namespace tessera
