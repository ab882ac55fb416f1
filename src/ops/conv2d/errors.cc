// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/conv2d/conv2d.h"

namespace tessera {

// As those of matmul, over the window's products. The sum errs relative to the sum of its products' magnitudes, or as a
// walk (Growth); its product with the scales of x and w adds two roundings, and up to three scales multiplied with one
// another two. Numbers below the smallest normal f32 may be lost, as products and, where bf16 is multiplied, as
// operands: then all of the other factor goes with them.
std::vector<double> conv2d_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                  const Roundings& r) {
  const auto sums_of = [&](std::vector<Dense> operands) {
    return compute_reference(conv2d_op(), before_program(p), operands)[0];
  };
  const auto changed = [](Dense d, auto&& f) {
    std::transform(d.v.begin(), d.v.end(), d.v.begin(), f);
    return d;
  };
  const auto magnitude = [](double v) { return std::fabs(v); };
  const auto size_of = [&](double v) { return r.walk() ? v * v : std::fabs(v); };
  const Dense sums = sums_of({changed(in[0], size_of), changed(in[1], size_of)});
  const int64_t k = p.in[1].shape.back();
  std::vector<double> e(sums.v.size());
  for (size_t i = 0; i < e.size(); ++i) {
    const double y = before.v[i], size = r.walk() ? std::sqrt(sums.v[i]) : sums.v[i],
                 partial = r.walk() ? std::sqrt(sums.v[i] + y * y) : size;
    e[i] =
        2 * r.operand() * size + r.sum(k) * partial + 5 * r.unit() * std::fabs(y) + static_cast<double>(k) * 0x1p-126;
  }
  if (r.computed() != Element::bf16) return e;
  const auto one = [](double) { return 1.0; };
  const Dense x = sums_of({changed(in[0], magnitude), changed(in[1], one)}),
              w = sums_of({changed(in[0], one), changed(in[1], magnitude)});
  for (size_t i = 0; i < e.size(); ++i) e[i] += 0x1p-126 * (x.v[i] + w.v[i]);
  return e;
}

}  // namespace tessera
