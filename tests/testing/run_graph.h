// SPDX-License-Identifier: Apache-2.0
// Runs a graph node by node with the references, for tests that compare graphs before and after a pass or with another
// runtime's outputs.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace tessera::testing {

using Numbers = std::vector<double>;

// Inputs in the order of the graph's, as numbers; results likewise. Buffers are poisoned before they are written.
Result<std::vector<Numbers>> run_graph(const Graph& graph, std::span<const Numbers> inputs);

// Seeded normal numbers for every input of the graph.
std::vector<Numbers> random_inputs(const Graph& graph, uint64_t seed);

// |a - b| / |b| over all numbers.
double relative_error(const Numbers& a, const Numbers& b);

// The graph of this text in canonical form. Fails the test where it has none.
Graph canonical(const std::string& text);

// How many nodes of each op; maps and reductions as "map.erf", "reduce.mean".
std::map<std::string, int> count_ops(const Graph& graph);

}  // namespace tessera::testing
