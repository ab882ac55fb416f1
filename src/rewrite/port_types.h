// SPDX-License-Identifier: Apache-2.0
// Inputs and outputs in the type that callers have: a model's floats are f32 outside until somebody says otherwise,
// whatever its layers run in. In 16 bits a copy inside converts; where it meets a type that the engine has anyway, no
// kernel is left of it. Images may come as bytes (rewrite/byte_ports.h).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "io/images_prepare.h"
#include "ir/graph.h"
#include "rewrite/keep_caches.h"

namespace tessera {

struct PortType {
  std::string name;  // of inputs and outputs; * matches any
  Element element = Element::f32;
  Pixels pixels = {};  // of u8
  bool operator==(const PortType&) const = default;
};
// "image=fp16", "*=bf16", "image=u8,mean=0.485:0.456:0.406,std=0.229:0.224:0.225".
Result<PortType> parse_port_type(const std::string& text);

// Contract: the graph's ports are f32 or whole numbers. Each entry must name one of f32 at least, one of u8 images
// alone; later ones go before earlier ones. States, of `states` or the graph's own, keep their type, which is that of
// the layers.
Status give_port_types(Graph& graph, const std::vector<PortType>& types, const std::vector<StatePattern>& states);

}  // namespace tessera
