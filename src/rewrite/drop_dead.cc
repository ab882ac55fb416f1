// SPDX-License-Identifier: Apache-2.0
#include "rewrite/drop_dead.h"

#include <algorithm>

namespace tessera {

Status drop_dead(Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  const auto mark = [&](ValueId id) {
    if (id != kNoValue) live[static_cast<size_t>(id)] = true;
  };
  for (ValueId id : graph.outputs) mark(id);
  for (ValueId id : graph.inputs) mark(id);
  std::vector<Node> kept;
  for (size_t i = graph.nodes.size();
       i-- > 0;) {  // readers come after what they read, so one walk from the back is enough
    Node& n = graph.nodes[i];
    const bool needed =
        std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId id) { return live[static_cast<size_t>(id)]; });
    if (!needed) continue;
    for (ValueId id : n.outputs) mark(id);
    for (ValueId id : n.inputs) mark(id);
    kept.push_back(std::move(n));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    mark(graph.values[i].scale);
    mark(graph.values[i].scale2);
  }
  std::vector<ValueId> renumbered(live.size(), kNoValue);
  std::vector<Value> values;
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    renumbered[i] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[i]));
  }
  graph.values = std::move(values);
  const auto renumber = [&](ValueId& id) {
    if (id != kNoValue) id = renumbered[static_cast<size_t>(id)];
  };
  for (Value& v : graph.values) {
    renumber(v.scale);
    renumber(v.scale2);
  }
  for (Node& n : graph.nodes) {
    for (ValueId& id : n.inputs) renumber(id);
    for (ValueId& id : n.outputs) renumber(id);
  }
  for (ValueId& id : graph.inputs) renumber(id);
  for (ValueId& id : graph.outputs) renumber(id);
  return {};
}

}  // namespace tessera
