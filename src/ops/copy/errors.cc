// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/copy/copy.h"

namespace tessera {

// Where x has a scale, its product with the code is rounded once in f32, and once more where there are two levels.
std::vector<double> copy_errors(const Problem& p, std::span<const Dense>, const Dense& y, const Roundings& r) {
  std::vector<double> e(y.v.size(), 0.0);
  const int roundings = p.in[0].type.scaled() + (p.in[0].type.scale2.granularity != Granularity::kNone);
  for (size_t i = 0; i < e.size() && roundings > 0; ++i) e[i] = roundings * r.unit() * std::fabs(y.v[i]);
  return e;
}

}  // namespace tessera
