// SPDX-License-Identifier: Apache-2.0
// What follows the matmul of queries, keys and values goes into its epilogue: the rotary of its first columns becomes
// its step `rotary` (steps/rotary.h), and writes of its columns into states become its kept results
// (op/extra_results.h), in the memory of the state. So a layer of a decoding step is a matmul and its attention.
// Only where the kernel that is best at the matmul alone runs all of it and is not slow at it, nobody else reads the
// columns before they are turned, and whoever reads them afterwards runs on the same kernel with rows that have a
// distance. Cosines and sines must lie in one row: they are joined, once for all layers, where they are two tensors.
// Error: the rounding between matmul and rotary is saved.
// Contract: types are given, layers are joined (lower/join_layers.h), writes into states are marked
// (lower/keep_states.h).
#pragma once

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status finish_heads(Graph& graph, Arch target);

}  // namespace tessera
