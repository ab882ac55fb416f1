// SPDX-License-Identifier: Apache-2.0
#include "steps/residual.h"

#include <cmath>

#include "steps/step.h"

namespace tessera {
namespace {

void reference(const StepRow& r, double* v) {
  for (int64_t c = 0; c < r.cols; ++c) v[c] += r.operand[c];
}

void errors(const StepRow& r, const double*, const double* after, double* e) {
  for (int64_t c = 0; c < r.cols; ++c) e[c] += kFp32Unit * std::fabs(after[c]);
}

}  // namespace

StepInfo residual_step() {
  return {.meaning = "v += r[row mod rows of r, col]",
          .check = check_matrix,
          .reference = reference,
          .errors = errors,
          .unfused = [](const Step&) {
            return std::vector<StepMap>{{"add", StepMap::With::kMatrix}};
          }};
}

}  // namespace tessera
