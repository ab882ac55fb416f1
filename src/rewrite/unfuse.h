// SPDX-License-Identifier: Apache-2.0
// Undoes fuse.h where a target asks for it: a matmul whose program no kernel of the target runs gives its last steps
// back to maps, as few as let it run. Where the result is f32 and no kernel writes that, it is made in the carrier, and
// the step after it, or a copy, widens it. Where it is codes that no kernel of the layer's type makes, a copy makes
// them of the carrier. What does not run that way either stays as it is: the plan says why.
// Error: one rounding for each step given back, one to the carrier for a result that is widened or that a
// copy makes codes of.
// Contract: types are given (precision/quantize.h), views are merged, gates are made (lower/fuse_gate.h).
#pragma once

#include "archs/arch.h"
#include "ir/graph.h"

namespace tessera {

void unfuse(Graph& graph, Arch target, Element carrier);

// Whether unfuse would make the node run, which no kernel of the target takes as it is.
bool runs_unfused(const Graph& graph, size_t node, Arch target, Element carrier);

}  // namespace tessera
