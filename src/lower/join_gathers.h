// SPDX-License-Identifier: Apache-2.0
// Gathers that pick one row of constant tables by the same index become one: columns of the tables lie side by side in
// one table, and each reader sees its own. Columns that nobody reads are left out; what a reader sees begins at 16
// bytes, as kernels want of vectors, and neighbours stay neighbours. The gather has the first one's name and attr
// `tables`, how many there were. Changes no number.
// Contract: types are given (precision/quantize.h), views are merged.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status join_gathers(Graph& graph);

}  // namespace tessera
