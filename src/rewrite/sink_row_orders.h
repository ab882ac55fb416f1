// SPDX-License-Identifier: Apache-2.0
// A linear layer that takes its rows in another order than they lie in (tokens before batch, as sequence-first
// attention modules do) would need them copied. Here it takes them as they lie, and its result is viewed in the other
// order. Only where every reader of the result can read it so. Each row's numbers stay the same. Contract: views are
// merged, no dead nodes.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status sink_row_orders(Graph& graph);

}  // namespace tessera
