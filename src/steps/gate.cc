// SPDX-License-Identifier: Apache-2.0
// The two layers of a gated MLP as one matmul, whose columns are those of the gate and then the others: halves of one
// result, so no map of the graph computes it.
#include <cmath>

#include "steps/step.h"
#include "steps/unary.h"

namespace tessera {
namespace {

void reference(const StepRow& r, double* v) {
  const int64_t kept = r.cols / 2;
  for (int64_t c = 0; c < kept; ++c) v[c] = apply(r.step.fn, v[c]) * v[kept + c];
}

// v = f(a) b: |dv| <= |b| |df| + |f(a)| |db| + |df| |db|, and the product's own rounding.
void errors(const StepRow& r, const double* before, const double* after, double* e) {
  const int64_t kept = r.cols / 2;
  for (int64_t c = 0; c < kept; ++c) {
    const double f = apply(r.step.fn, before[c]);
    const double f_error = unary_error(r.step.fn, before[c], f, e[c], r.activation_error);
    e[c] = f_error * std::fabs(before[kept + c]) + (std::fabs(f) + f_error) * e[kept + c] +
           kFp32Unit * std::fabs(after[c]);
  }
}

}  // namespace

StepInfo gate_step() {
  return {.meaning = "v[row, c] = f(v[row, c]) * v[row, n + c] for c < n: 2 n columns become n",
          .reference = reference,
          .errors = errors};
}

}  // namespace tessera
