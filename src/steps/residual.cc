// SPDX-License-Identifier: Apache-2.0
#include "steps/residual.h"

#include "steps/step.h"

namespace tessera {

StepInfo residual_step() {
  return {.meaning = "v += r[row mod rows of r, col]",
          .check = check_matrix,
          .reference = add_operand,
          .errors = errors_of_addition,
          .unfused = [](const Step&) {
            return std::vector<StepMap>{{"add", StepMap::With::kMatrix}};
          }};
}

}  // namespace tessera
