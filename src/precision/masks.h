// SPDX-License-Identifier: Apache-2.0
// What says which keys a query may see. A value acts as a mask where it reaches what is added to an attention's scores,
// or the argument of a softmax, through maps and moves alone: no layer reads it on that way.
#pragma once

#include <set>

#include "ir/graph.h"

namespace tessera {

// The graph's inputs that act as masks (they may be read for something else as well).
std::set<ValueId> mask_inputs(const Graph& graph);

}  // namespace tessera
