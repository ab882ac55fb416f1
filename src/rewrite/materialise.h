// SPDX-License-Identifier: Apache-2.0
// Puts a `copy` where an op cannot read a view as it lies (OpInfo::strided; vectors of programs must be dense, matrices
// may be whole rows of a dense one), and where a result of the graph has no storage of its own: a view, an input, a
// constant, or one value under two names. One copy serves all later readers. Changes no number.
#pragma once

#include "base/status.h"
#include "ir/graph.h"
#include "ir/region.h"

namespace tessera {

Status materialise(Graph& graph);

// Whether an op reads this operand of a node as it lies, at a region of another value's storage.
bool reads_as_it_lies(const Node& node, size_t input, const Region& region);

}  // namespace tessera
