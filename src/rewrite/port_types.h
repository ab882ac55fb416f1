// SPDX-License-Identifier: Apache-2.0
// Inputs and outputs in 16 bits, for callers whose own tensors are: a model's floats are f32 outside until somebody
// says otherwise, whatever its layers run in. A copy inside converts; where it meets a type that the engine has anyway,
// no kernel is left of it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "rewrite/keep_caches.h"

namespace tessera {

struct PortType {
  std::string name;  // of inputs and outputs; * matches any
  Element element = Element::f32;
  bool operator==(const PortType&) const = default;
};
// "image=fp16", "*=bf16".
Result<PortType> parse_port_type(const std::string& text);

// Contract: the graph's ports are f32 or whole numbers. Each entry must name one of f32 at least; later ones go before
// earlier ones. States keep their type, which is that of the layers.
Status give_port_types(Graph& graph, const std::vector<PortType>& types, const std::vector<StatePattern>& states);

}  // namespace tessera
