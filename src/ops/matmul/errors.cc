// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/matmul/matmul.h"

namespace tessera {

// The sum errs relative to the sum of its products' magnitudes, or as a walk (Growth); its product with the scales of x
// and w adds two roundings, and up to four scales (two levels each) multiplied with one another three. Numbers below
// the smallest normal f32 may be lost, as products and, where bf16 is multiplied, as operands: then all of the other
// factor goes with them.
std::vector<double> matmul_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                  const Roundings& r) {
  std::vector<Dense> magnitudes = {in[0], in[1]};
  for (Dense& d : magnitudes) {
    for (double& v : d.v) v = r.walk() ? v * v : std::fabs(v);
  }
  const Dense sums = compute_reference(matmul_op(), before_program(p), magnitudes)[0];
  const int64_t k = p.in[0].shape.back();
  std::vector<double> e(sums.v.size());
  for (size_t i = 0; i < e.size(); ++i) {
    const double y = before.v[i], size = r.walk() ? std::sqrt(sums.v[i]) : sums.v[i],
                 partial = r.walk() ? std::sqrt(sums.v[i] + y * y) : size;
    e[i] =
        2 * r.operand() * size + r.sum(k) * partial + 5 * r.unit() * std::fabs(y) + static_cast<double>(k) * 0x1p-126;
  }
  if (r.computed() != Element::bf16) return e;
  const MatmulProblem q = MatmulProblem::of(p);
  const auto row_sums = [&](const Dense& d) {
    std::vector<double> rows(d.v.size() / static_cast<size_t>(k));
    for (size_t i = 0; i < d.v.size(); ++i) rows[i / static_cast<size_t>(k)] += d.v[i];
    return rows;
  };
  if (r.walk()) {
    for (size_t i : {0, 1})
      std::transform(in[i].v.begin(), in[i].v.end(), magnitudes[i].v.begin(), [](double v) { return std::fabs(v); });
  }
  const std::vector<double> x = row_sums(magnitudes[0]), w = row_sums(magnitudes[1]);
  for (size_t i = 0; i < e.size(); ++i) {
    const size_t n = static_cast<size_t>(q.n), row = i / n;
    e[i] += 0x1p-126 * (x[row] + w[row / static_cast<size_t>(q.m) * (q.batch > 1 ? n : 0) + i % n]);
  }
  return e;
}

}  // namespace tessera
