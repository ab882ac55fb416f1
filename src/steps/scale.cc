// SPDX-License-Identifier: Apache-2.0
#include "steps/scale.h"

#include <cmath>

#include "steps/step.h"

namespace tessera {
namespace {

void reference(const StepRow& r, double* v) {
  for (int64_t c = 0; c < r.cols; ++c) v[c] *= r.operand[c];
}

void errors(const StepRow& r, const double*, const double* after, double* e) {
  for (int64_t c = 0; c < r.cols; ++c) e[c] = e[c] * std::fabs(r.operand[c]) + kFp32Unit * std::fabs(after[c]);
}

}  // namespace

StepInfo scale_step() {
  return {.meaning = "v *= g[col]",
          .operand_name = "layer scale",
          .check = check_vector,
          .reference = reference,
          .errors = errors,
          .unfused = [](const Step&) {
            return std::vector<StepMap>{{"mul", StepMap::With::kVector}};
          }};
}

}  // namespace tessera
