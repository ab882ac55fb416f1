// SPDX-License-Identifier: Apache-2.0
#include "precision/masks.h"

namespace tessera {

std::set<ValueId> mask_inputs(const Graph& graph) {
  std::vector<bool> acts(graph.values.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    bool passes_on = node.op == "map" || node.op == "view" || node.op == "copy" || node.op == "concat" ||
                     node.op == "gather" || node.op == "reduce";
    bool reached = false;
    for (ValueId out : node.outputs) reached = reached || acts[static_cast<size_t>(out)];
    passes_on = passes_on && reached;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool scores = (node.op == "attention" && i == 3) || (node.op == "softmax" && i == 0);
      const bool index = node.op == "gather" && i == 1;  // chooses rows: it is none of their numbers
      if (node.inputs[i] != kNoValue && (scores || (passes_on && !index)))
        acts[static_cast<size_t>(node.inputs[i])] = true;
    }
  }
  std::set<ValueId> found;
  for (ValueId in : graph.inputs) {
    if (acts[static_cast<size_t>(in)]) found.insert(in);
  }
  return found;
}

}  // namespace tessera
