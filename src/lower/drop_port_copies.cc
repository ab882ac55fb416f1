// SPDX-License-Identifier: Apache-2.0
#include "lower/drop_port_copies.h"

#include <algorithm>

namespace tessera {
namespace {

bool among(const std::vector<ValueId>& ids, ValueId id) { return std::count(ids.begin(), ids.end(), id) > 0; }

bool changes_nothing(const Graph& g, const Node& n) {
  if (n.op != "copy" || !n.then.empty() || !n.attrs.all().empty()) return false;
  const Value &from = g.at(n.inputs[0]), &to = g.at(n.outputs[0]);
  return !from.constant && from.type == to.type && !from.type.quant.scaled();
}

// Whether the copy is gone; its node is then left without a result.
bool drop(Graph& g, Node& copy) {
  const ValueId from = copy.inputs[0], to = copy.outputs[0];
  if (among(g.inputs, from) && !among(g.outputs, to)) {
    for (Node& n : g.nodes) std::replace(n.inputs.begin(), n.inputs.end(), to, from);
    return true;
  }
  if (!among(g.outputs, to) || among(g.inputs, from) || among(g.outputs, from)) return false;
  const auto maker = std::find_if(g.nodes.begin(), g.nodes.end(),
                                  [&](const Node& n) { return n.op != "view" && among(n.outputs, from); });
  if (maker == g.nodes.end()) return false;
  std::replace(maker->outputs.begin(), maker->outputs.end(), from, to);
  for (Node& n : g.nodes) std::replace(n.inputs.begin(), n.inputs.end(), from, to);
  return true;
}

}  // namespace

void drop_port_copies(Graph& graph) {
  for (size_t n = 0; n < graph.nodes.size();) {
    if (changes_nothing(graph, graph.nodes[n]) && drop(graph, graph.nodes[n])) {
      graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(n));
    } else {
      ++n;
    }
  }
}

}  // namespace tessera
