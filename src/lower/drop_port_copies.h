// SPDX-License-Identifier: Apache-2.0
// The copy between a port and its value that rewrite/port_types.h made changes nothing where layers run in the port's
// type: readers then read the port, and the maker of a result writes it. Changes no number.
#pragma once

#include "ir/graph.h"

namespace tessera {

// Contract: types are given (precision/quantize.h).
void drop_port_copies(Graph& graph);

}  // namespace tessera
