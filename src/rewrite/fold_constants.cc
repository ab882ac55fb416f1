// SPDX-License-Identifier: Apache-2.0
#include "rewrite/fold_constants.h"

#include <algorithm>

#include "ops/builder.h"

namespace tessera {

Status fold_constants(Graph& graph) {
  FoldBudget budget(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto constant = [&](ValueId id) { return id == kNoValue || graph.at(id).constant; };
    const Node node = graph.nodes[i];
    if (node.outputs.size() != 1 || node.inputs.empty() ||
        !std::all_of(node.inputs.begin(), node.inputs.end(), constant))
      continue;
    const ValueId old = node.outputs[0];
    if (std::find(graph.outputs.begin(), graph.outputs.end(), old) != graph.outputs.end())
      continue;  // a result must be made by a node
    if (graph.at(old).type.quant.scaled()) continue;
    GraphBuilder builder(graph, i, &budget);
    ValueId folded = kNoValue;
    if (node.op == "view") {
      TS_ASSIGN(folded, builder.view(node.inputs[0], {graph.at(old).type.shape, node.attrs.list("strides"),
                                                      node.attrs.integer("offset")}));
    } else {
      TS_ASSIGN(folded, builder.emit(Node{.name = node.name,
                                          .op = node.op,
                                          .inputs = node.inputs,
                                          .outputs = {},
                                          .attrs = node.attrs,
                                          .then = node.then,
                                          .role = {},
                                          .asked = {}}));
    }
    const bool same = graph.at(folded).constant && graph.at(folded).type == graph.at(old).type;
    // Too large to fold: the builder made the same node once more. Take it out again; its value is dropped by
    // drop_dead.
    if (builder.position() > i)
      graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(i),
                        graph.nodes.begin() + static_cast<std::ptrdiff_t>(builder.position()));
    if (same) graph.replace_uses(old, folded);
  }
  return {};
}

}  // namespace tessera
