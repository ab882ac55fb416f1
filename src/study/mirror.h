// SPDX-License-Identifier: Apache-2.0
// A step of a plan as the golden plan has it: the golden plan's attributes, program, weights and scales over the
// activations that the plan read. A file may say anything of both plans: mirror_step refuses what does not fit, so that
// the op's reference may run over whatever it returns.
#pragma once

#include "ops/op.h"
#include "plan/engine.h"

namespace tessera {

struct MirroredStep {
  Problem problem;  // over the samples that both plans have
  // Every operand was brought to those samples. Otherwise the problem has all samples of the plan, and its own
  // constants.
  bool cut = true;
};

// Contract: check_engine found nothing; the plans have as many steps.
Result<MirroredStep> mirror_step(const Plan& plan, const Plan& golden, size_t step);

// The numbers of operand `i` of a mirrored step. `view` is what the plan read.
Dense read_mirrored(const Engine& engine, const Plan& golden, const MirroredStep& mirrored, const PlanStep& golden_step,
                    size_t i, TensorView view);
// A result of the plan, read with the golden plan's scales where it has them.
TensorView result_mirrored(const Engine& engine, const Plan& golden, const MirroredStep& mirrored,
                           const PlanStep& golden_step, size_t result, TensorView view);

}  // namespace tessera
