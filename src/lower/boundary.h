// SPDX-License-Identifier: Apache-2.0
// CUDA plans reach the caller's buffers through slots, which only boundary ops (OpInfo::boundary) can read and write.
// This pass puts a `copy` between an input and its other readers, and between an output and a producer of another kind.
// States lie in the session's memory, which every op reaches (keep_states.h). Error: 0.
#pragma once

#include "ir/graph.h"

namespace tessera {

void add_boundary_copies(Graph& graph);

}  // namespace tessera
