// SPDX-License-Identifier: Apache-2.0
// Takes out casts between integers that no reader can tell from their source: comparisons, conditions, ids, largest and
// smallest numbers, other casts. What passes a number on (views, reductions) takes the source's type. A number that the
// narrower type could not hold is then read as it is, not cut. Else changes no number. Contract: views are merged.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status drop_casts(Graph& graph);

}  // namespace tessera
