// SPDX-License-Identifier: Apache-2.0
// How far the numbers of each value reach, as far as the graph itself says it: constants, the branches of `where`, sums
// and products of them, the scales that a model states for its activations, and calibrated ranges. What no
// rule covers (what a layer makes of the caller's numbers) counts as ordinary, -1 to 1: such a value is not held
// against a type here, the golden run does that.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ir/ranges.h"

namespace tessera {

struct Reach {
  double low = -1, high = 1;
  // Beyond the largest number of the element, or of one sign and below its smallest: a divisor that must not become 0.
  bool leaves(Element element) const;
};

// `ranges` may be null. The caller's floats that act as masks (masks.h) reach everything.
std::vector<Reach> reach_of_values(const Graph& graph, const Ranges* ranges);

}  // namespace tessera
