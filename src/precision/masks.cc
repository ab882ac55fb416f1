// SPDX-License-Identifier: Apache-2.0
#include "precision/masks.h"

namespace tessera {

namespace {

// Values that reach what `is_end` says (a node and an operand of it) through maps and moves; `reduces`: through
// reductions too.
template <class IsEnd>
std::vector<bool> reaching(const Graph& graph, bool reduces, IsEnd is_end) {
  std::vector<bool> acts(graph.values.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    bool passes_on = node.op == "map" || node.op == "view" || node.op == "copy" || node.op == "concat" ||
                     node.op == "gather" || (reduces && node.op == "reduce");
    bool reached = false;
    for (ValueId out : node.outputs) reached = reached || acts[static_cast<size_t>(out)];
    passes_on = passes_on && reached;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool index = node.op == "gather" && i == 1;  // chooses rows: it is none of their numbers
      if (node.inputs[i] != kNoValue && (is_end(node, i) || (passes_on && !index)))
        acts[static_cast<size_t>(node.inputs[i])] = true;
    }
  }
  return acts;
}

bool reads_scores(const Node& node, size_t i) { return node.op == "softmax" && i == 0; }

}  // namespace

std::vector<bool> reaching_softmax(const Graph& graph) { return reaching(graph, false, reads_scores); }

std::set<ValueId> mask_inputs(const Graph& graph) {
  const std::vector<bool> acts = reaching(graph, true, [](const Node& node, size_t i) {
    return reads_scores(node, i) || (node.op == "attention" && i == 3);
  });
  std::set<ValueId> found;
  for (ValueId in : graph.inputs) {
    if (acts[static_cast<size_t>(in)]) found.insert(in);
  }
  return found;
}

}  // namespace tessera
