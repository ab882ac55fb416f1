// SPDX-License-Identifier: Apache-2.0
// A step of a plan as it is judged: over the activations that it read, with the golden plan's attributes, program,
// weights and scales where the golden plan has the same step, else with its own. Engine files are untrusted:
// judged_step refuses plans that do not fit each other, so that the op's reference can run on whatever it returns.
#pragma once

#include <span>
#include <vector>

#include "op/op.h"
#include "plan/engine.h"

namespace tessera {

// The step of plan `in` that is step `step` of plan `of`: the same op of the same layer, the n-th of them where
// there are several; -1: none.
int same_step(const Plan& of, size_t step, const Plan& in);

struct JudgedStep {
  Problem problem;  // over the samples that both plans have; names its config. Constants lie as in `golden`
  int golden = -1;  // step of the golden plan; -1: none corresponds, or the batch cannot be cut to the golden one
  std::string differs = {};  // attributes or a program of its own, in a sentence; empty: those of the golden plan
};

// Contract: check_engine found nothing.
Result<JudgedStep> judged_step(const Plan& plan, const Plan& golden, size_t step);

// Operands and results of a judged step, of which `in` and `out` are what the plan read and wrote. Valid while all
// arguments live.
struct JudgedViews {
  std::vector<TensorView> in, out;
};
JudgedViews views_of(const Engine& engine, const Plan& golden, const JudgedStep& judged, std::span<const TensorView> in,
                     std::span<const TensorView> out);

}  // namespace tessera
