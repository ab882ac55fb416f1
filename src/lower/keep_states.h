// SPDX-License-Identifier: Apache-2.0
// A state's last value is written over its first, in the session's own memory, so that nothing is copied from run to
// run. Where a chain of `write` nodes leads from the state's input to its output and nobody reads what is written over
// afterwards, the nodes become in-place ones (ir/graph.h, kInPlace). Any other result is written over the whole state
// at the end of the run.
// Error: 0. Contract: types are given; a state's input and output have the same one.
#pragma once

#include "ir/graph.h"

namespace tessera {

void keep_states(Graph& graph);

}  // namespace tessera
