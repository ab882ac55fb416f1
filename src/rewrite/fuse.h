// SPDX-License-Identifier: Apache-2.0
// Lets a matmul run what follows it: maps that are a step's unfused form (steps/step.h) become that step. Adding a
// vector becomes `bias`, an activation `act`, multiplying by a vector `scale`, adding another value `residual` (its
// rows repeat where it has fewer, as position embeddings over a batch do). A vector is a constant, or a value of one
// row for all rows of the result (the gates of adaRMS). Steps keep the order of ir/steps.inc, each once, which is what
// kernels run; the values in between must have no other reader. Norm and attention take no such steps: their programs
// are for quantize. Error: the rounding of each value that is no longer stored is saved, none is added.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// Contract: no dead nodes (they would count as readers), views merged.
Status fuse(Graph& graph);

}  // namespace tessera
