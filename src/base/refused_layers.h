// SPDX-License-Identifier: Apache-2.0
// What a refusal (Code::kRefused) knows of single layers, as data beside its sentence: made where the refusal is, it
// travels in the Status up to whoever shows it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tessera {

// Who would not run a layer, and why. No variant: the reason is of the layer itself, whoever would run it.
struct Refusal {
  std::string variant, reason;
  bool operator==(const Refusal&) const = default;
};

// A layer that cannot run as asked. No refusals: no variant of its op is for that target.
struct RefusedLayer {
  std::string layer, op;
  std::string asked;  // as PlanStep has it: "mxfp8"; empty: nothing was asked of it
  std::vector<Refusal> refusals;
};

// No layers: it is about none of them.
inline Status refused(std::string m, std::vector<RefusedLayer> layers) {
  if (layers.empty()) return refused(std::move(m));
  return {Code::kRefused, std::move(m), std::make_shared<const std::vector<RefusedLayer>>(std::move(layers))};
}
// One layer (a node of a graph), for one reason.
template <class Node>
Status refused_layer(const Node& node, const std::string& asked, const std::string& reason) {
  return refused("layer " + node.name + ": " + reason, {{node.name, node.op, asked, {{"", reason}}}});
}

}  // namespace tessera
