// SPDX-License-Identifier: Apache-2.0
// The weight of a linear layer as a graph holds it: a constant [n, k] of any type, its scales constants beside it. What
// is done to its numbers is matrix mathematics and lies in weights/.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "types/quantize_array.h"

namespace tessera {

// A matmul with a constant weight [n, k].
bool is_linear_layer(const Graph& graph, const Node& node);
// A constant of the type, named as precision/quantize names them, with its scales beside it.
ValueId add_weight(Graph& graph, const std::string& name, const Shape& shape, const QuantType& type,
                   QuantizedArray arrays);
// Whether of each four numbers along k at most two are not zero. Dense weights are known by their first row or two.
bool has_24_zeros(const Graph& graph, ValueId weight);
// The numbers of a weight's constant, scales applied.
std::vector<float> weight_numbers(const Graph& graph, ValueId weight);

}  // namespace tessera
