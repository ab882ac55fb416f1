// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/copy/copy.h"

namespace tessera {

// Where x has a scale, its product with the code is rounded once in f32.
std::vector<double> copy_errors(const Problem& p, std::span<const Dense>, const Dense& y, const Roundings& r) {
  std::vector<double> e(y.v.size(), 0.0);
  for (size_t i = 0; i < e.size() && p.in[0].type.scaled(); ++i) e[i] = r.unit() * std::fabs(y.v[i]);
  return e;
}

}  // namespace tessera
