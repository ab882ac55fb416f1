// SPDX-License-Identifier: Apache-2.0
// Evaluates, with the reference, nodes and views that depend on constants only (where their size allows it:
// ops/builder.h). Each folded result is rounded to its own type once, as running the node would do: no error is added.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status fold_constants(Graph& graph);

}  // namespace tessera
