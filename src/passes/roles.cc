// SPDX-License-Identifier: Apache-2.0
#include "passes/roles.h"

namespace tessera {
namespace {

// Ops that hand a value on: its role is that of whoever reads their result.
bool hands_on(const Node& n) { return n.op == "view" || n.op == "copy" || n.op == "rotary" || n.op == "concat"; }

}  // namespace

void assign_roles(Graph& g) {
  // Forward: has a layer been met, is this an attention's result? Backward: will a layer be met, an attention?
  const auto is_mark = [&](const Node& n) { return n.op == "norm" || n.op == "attention" || is_linear(g, n); };
  const size_t count = g.values.size();
  std::vector<bool> after(count, false), attended(count, false), before(count, false), attends(count, false);
  for (Node& n : g.nodes) {
    bool seen = false, from_attention = n.op == "attention";
    for (ValueId in : n.inputs) {
      if (in == kNoValue) continue;
      seen = seen || after[static_cast<size_t>(in)];
      from_attention = from_attention || (hands_on(n) && attended[static_cast<size_t>(in)]);
    }
    if (is_linear(g, n)) n.role = !seen ? "embed" : attended[static_cast<size_t>(n.inputs[0])] ? "block.attention_out" : "";
    if (n.op == "attention") n.role = "block.attention";
    for (ValueId out : n.outputs) {
      after[static_cast<size_t>(out)] = seen || is_mark(n);
      attended[static_cast<size_t>(out)] = from_attention;
    }
  }
  for (size_t i = g.nodes.size(); i-- > 0;) {
    Node& n = g.nodes[i];
    bool coming = false, to_attention = false;
    for (ValueId out : n.outputs) {
      coming = coming || before[static_cast<size_t>(out)];
      to_attention = to_attention || attends[static_cast<size_t>(out)];
    }
    if (is_linear(g, n) && n.role != "embed") {
      // A layer that adds to a residual stream belongs to a block, even where nothing follows.
      if (!coming && n.then.find(StepKind::residual) == nullptr) {
        n.role = "head";
      } else if (to_attention) {
        n.role = "block.attention_in";
      } else if (n.role.empty()) {
        n.role = "block.mlp";
      }
    }
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const ValueId in = n.inputs[k];
      if (in == kNoValue) continue;
      if (coming || is_mark(n)) before[static_cast<size_t>(in)] = true;
      // Norms of single queries and keys stand between; an attention's fourth operand is its mask.
      const bool first = k == 0 || n.op == "concat";
      const bool reaches = n.op == "attention" ? k < 3 : to_attention && first && (hands_on(n) || n.op == "norm");
      if (reaches) attends[static_cast<size_t>(in)] = true;
    }
  }
}

}  // namespace tessera
