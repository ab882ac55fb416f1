// SPDX-License-Identifier: Apache-2.0
// A result of the graph that shows another value under another shape (a pooled token without its axis of size 1) would
// need a copy of its own. Where that value's maker works row by row (matmul, norm, map), it makes the result in the
// caller's shape instead, and other readers see it in theirs. Some rows of a norm's result (the first token's) are made
// a second time: as cheap as a copy. Changes no number. Contract: views are merged.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status shape_outputs(Graph& graph);

}  // namespace tessera
