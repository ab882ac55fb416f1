// SPDX-License-Identifier: Apache-2.0
// Removes nodes and values that no result of the graph depends on, and numbers the remaining values anew. Inputs stay,
// read or not. Changes no number.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status drop_dead(Graph& graph);

}  // namespace tessera
