// SPDX-License-Identifier: Apache-2.0
// Linear layers that read one value (q, k and v) become one matmul: the rows of their weights lie in one matrix, and
// what was a layer's result is a view of some columns of the joined one. The matmul has all names, "q+k+v", and attr
// `joined` (plan/plan.h). Then the rotaries of neighbouring columns by the same angles become one.
// Only where every layer is what it would be alone: the same precision was asked for, types are equal, programs are
// equal but for biases and scales, which get a 0 or a 1 where a layer has none (lower/joined_rows.h); where a kernel of
// the target runs the joined matmul; and where whoever reads a result runs on the same kernel with rows that have a
// distance. Error: none is added or saved.
// Contract: types are given (precision/quantize.h), views are merged, gates are fused (lower/fuse_gate.h).
#pragma once

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status join_layers(Graph& graph, Arch target);

}  // namespace tessera
