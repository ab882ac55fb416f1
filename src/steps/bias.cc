// SPDX-License-Identifier: Apache-2.0
#include "steps/bias.h"

#include "steps/step.h"

namespace tessera {

StepInfo bias_step() {
  return {.meaning = "v += b[col]",
          .check = check_vector,
          .reference = add_operand,
          .errors = errors_of_addition,
          .unfused = [](const Step&) {
            return std::vector<StepMap>{{"add", StepMap::With::kVector}};
          }};
}

}  // namespace tessera
