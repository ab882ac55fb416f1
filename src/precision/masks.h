// SPDX-License-Identifier: Apache-2.0
// What says which keys a query may see. A value acts as a mask where it reaches what is added to an attention's scores,
// or the argument of a softmax, through maps and moves alone: no layer reads it on that way.
#pragma once

#include <set>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// Numbers that are this low, or lower, are added to hide keys, not to weigh them. Scores added to it differ by 0.5 at
// least in f16, by 4 in bf16.
constexpr double kHidesKeys = -1000;

// Per value: whether it is what a softmax reads, or reaches that through maps and moves alone.
std::vector<bool> reaching_softmax(const Graph& graph);

// The graph's inputs that act as masks (they may be read for something else as well).
std::set<ValueId> mask_inputs(const Graph& graph);

}  // namespace tessera
