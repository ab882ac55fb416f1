// SPDX-License-Identifier: Apache-2.0
// What passes ask a target: whether a kernel of it takes a node with the types that its operands and results have now.
#pragma once

#include <vector>

#include "archs/arch.h"
#include "ir/graph.h"
#include "op/problem.h"

namespace tessera {

bool has_kernel(const Problem& problem, Arch target);
// `producers`: Graph::producers().
bool has_kernel(const Graph& graph, const std::vector<int>& producers, const Node& node, Arch target);

}  // namespace tessera
