// SPDX-License-Identifier: Apache-2.0
// Codes of the result's type: encoding the result makes them, whoever does it, so there is nothing to do here.
#include "steps/step.h"

namespace tessera {

StepInfo quantize_step() {
  return {.meaning = "v becomes a code of the result's type, with the result's scale", .rounds = true};
}

}  // namespace tessera
