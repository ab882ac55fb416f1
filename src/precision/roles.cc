// SPDX-License-Identifier: Apache-2.0
#include "precision/roles.h"

namespace tessera {
namespace {

// Ops that hand a value on: its role is that of whoever reads their result.
bool hands_on(const Node& n) {
  return n.op == "view" || n.op == "copy" || n.op == "rotary" || n.op == "concat" || n.op == "write";
}

// What a product multiplies; what its program adds or scales by passes through as it is.
bool multiplies(size_t input) { return input < 2; }

bool adds(const Node& n) {
  return n.then.find(StepKind::residual) != nullptr ||
         (n.op == "map" && (n.attrs.word("fn") == "add" || n.attrs.word("fn") == "sub"));
}

// A layer on a residual stream computes x + f(x): on its way to the output its result is added to a value that its own
// input was computed from. Two heads whose results are added are no such stream.
class ResidualStreams {
 public:
  explicit ResidualStreams(const Graph& g) : g_(g), producers_(g.producers()) {}

  bool joins(size_t layer) const {
    const std::vector<bool> from = behind(g_.nodes[layer].inputs[0]);
    std::vector<bool> result(g_.values.size(), false);
    for (ValueId out : g_.nodes[layer].outputs) result[static_cast<size_t>(out)] = true;
    if (adds(g_.nodes[layer]) && reads(g_.nodes[layer], 2, from)) return true;
    for (size_t n = layer + 1; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (!reads(node, 0, result)) continue;
      if (adds(node) && reads(node, is_linear(g_, node) ? 2 : 0, from)) return true;
      for (ValueId out : node.outputs) result[static_cast<size_t>(out)] = true;
    }
    return false;
  }

 private:
  static bool reads(const Node& n, size_t first, const std::vector<bool>& set) {
    for (size_t i = first; i < n.inputs.size(); ++i) {
      if (n.inputs[i] != kNoValue && set[static_cast<size_t>(n.inputs[i])]) return true;
    }
    return false;
  }

  // The value and all that it was computed from, back to the embedding, where the stream begins: a head whose result is
  // added to the caller's own numbers (the next step of a denoiser) is on no stream. Without constants: layers that
  // share a table share no stream.
  std::vector<bool> behind(ValueId value) const {
    std::vector<bool> found(g_.values.size(), false);
    std::vector<ValueId> open = {value};
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (v == kNoValue || g_.at(v).constant || found[static_cast<size_t>(v)]) continue;
      found[static_cast<size_t>(v)] = true;
      const int maker = producers_[static_cast<size_t>(v)];
      if (maker < 0) continue;
      const Node& n = g_.nodes[static_cast<size_t>(maker)];
      if (n.role == "embed") continue;
      open.insert(open.end(), n.inputs.begin(), n.inputs.end());
    }
    return found;
  }

  const Graph& g_;
  const std::vector<int> producers_;
};

}  // namespace

void assign_roles(Graph& g) {
  // Forward: has a layer been met, is this an attention's result? Backward: will a product be met, an attention?
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
    if (is_linear(g, n))
      n.role = !seen ? "embed" : attended[static_cast<size_t>(n.inputs[0])] ? "block.attention_out" : "";
    if (n.op == "attention") n.role = "block.attention";
    for (ValueId out : n.outputs) {
      after[static_cast<size_t>(out)] = seen || is_mark(n);
      attended[static_cast<size_t>(out)] = from_attention;
    }
  }
  // Keys and values that are left in a cache are another run's: an attention follows there, if not here.
  const std::vector<int> producers = g.producers();
  for (const StatePair& s : g.states) {
    if (!s.output) continue;
    const auto left = static_cast<size_t>(g.outputs[*s.output]);
    if (producers[left] >= 0 && g.nodes[static_cast<size_t>(producers[left])].op == "write")
      before[left] = attends[left] = true;
  }
  const ResidualStreams streams(g);
  for (size_t i = g.nodes.size(); i-- > 0;) {
    Node& n = g.nodes[i];
    bool coming = false, to_attention = false;
    for (ValueId out : n.outputs) {
      coming = coming || before[static_cast<size_t>(out)];
      to_attention = to_attention || attends[static_cast<size_t>(out)];
    }
    if (is_linear(g, n) && n.role != "embed") {
      // A layer that adds to a residual stream belongs to a block, even where nothing follows.
      if (!coming && !streams.joins(i)) {
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
      if (coming || n.op == "attention" || (is_linear(g, n) && multiplies(k))) before[static_cast<size_t>(in)] = true;
      // Norms of single queries and keys stand between; an attention's fourth operand is its mask.
      const bool first = k == 0 || n.op == "concat" || (n.op == "write" && k == 1);
      const bool reaches = n.op == "attention" ? k < 3 : to_attention && first && (hands_on(n) || n.op == "norm");
      if (reaches) attends[static_cast<size_t>(in)] = true;
    }
  }
  for (Node& n : g.nodes) {
    if (is_linear(g, n) && g.at(n.inputs[1]).exact) n.role = kExactRole;
  }
}

}  // namespace tessera
