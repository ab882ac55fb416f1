// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/write/write.h"

namespace tessera {

// As a copy: the product of a code with its scale is rounded once in f32.
std::vector<double> write_errors(const Problem& p, std::span<const Dense>, const Dense& y, const Roundings& r) {
  std::vector<double> e(y.v.size(), 0.0);
  const bool scaled = p.in[0].type.scaled() || p.in[1].type.scaled();
  for (size_t i = 0; scaled && i < e.size(); ++i) e[i] = r.unit() * std::fabs(y.v[i]);
  return e;
}

}  // namespace tessera
