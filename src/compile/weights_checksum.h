// SPDX-License-Identifier: Apache-2.0
// What tells models of one form apart: a number of their weights.
#pragma once

#include <string>

#include "ir/graph.h"

namespace tessera {

// Checksum of the weights of the linear layers, whatever the batch; 16 hex digits. The graph is canonical.
std::string weights_checksum(const Graph& graph);

}  // namespace tessera
