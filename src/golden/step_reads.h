// SPDX-License-Identifier: Apache-2.0
// Which steps of a plan made what each of them reads. Tensors share memory and views lie in it, so it is memory that is
// followed.
#pragma once

#include <vector>

#include "plan/engine.h"

namespace tessera {

struct StepRead {
  size_t operand, step;  // this operand of the reader was written, in part at least, by this step
};
std::vector<std::vector<StepRead>> reads_of_steps(const Plan& plan);

// Steps whose results are what a softmax reads, or the bias of an attention, or reach one of them through maps and
// moves alone: scores, and numbers that hide keys.
std::vector<bool> steps_of_scores(const Plan& plan);

}  // namespace tessera
