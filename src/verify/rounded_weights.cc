// SPDX-License-Identifier: Apache-2.0
#include "verify/rounded_weights.h"

#include <algorithm>

#include "ops/attention/attention.h"

namespace tessera {
namespace {

// The node whose result lies in v, behind copies and views that leave it a float.
const Node* maker_of(const Graph& g, const std::vector<int>& producers, ValueId v) {
  for (;;) {
    const int maker = producers[static_cast<size_t>(placement_of(g, producers, v).base)];
    if (maker < 0) return nullptr;
    const Node& node = g.nodes[static_cast<size_t>(maker)];
    if (node.op != "copy" || g.at(node.outputs[0]).type.quant.scaled()) return &node;
    v = node.inputs[0];
  }
}

bool is_softmax(const Graph& g, const std::vector<int>& producers, ValueId v) {
  const Node* maker = maker_of(g, producers, v);
  return maker != nullptr && maker->op == "softmax";
}

bool are_weights(const QuantType& type, double scale) {
  return is_attention_weight(type) && is_scale_of_weights(scale, type.element);
}

}  // namespace

bool rounds_weights(const Graph& canonical) {
  return std::any_of(canonical.nodes.begin(), canonical.nodes.end(),
                     [](const Node& n) { return n.op == "attention" && n.attrs.has("p"); });
}

Graph without_rounded_weights(const Graph& written) {
  Graph g = written;
  const std::vector<int> producers = g.producers();
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& decode = g.nodes[n];
    const ValueId codes = decode.op == "copy" ? decode.inputs[0] : kNoValue;
    if (codes == kNoValue || g.at(codes).constant || g.at(codes).scale == kNoValue) continue;
    const int encode = producers[static_cast<size_t>(codes)];
    if (encode < 0 || g.nodes[static_cast<size_t>(encode)].op != "copy") continue;
    const ValueId numbers = g.nodes[static_cast<size_t>(encode)].inputs[0], decoded = decode.outputs[0];
    if (g.at(numbers).type == g.at(decoded).type &&
        are_weights(g.at(codes).type.quant, g.numbers(g.at(codes).scale)[0]) && is_softmax(g, producers, numbers))
      g.replace_uses(decoded, numbers);
  }
  return g;
}

Graph with_plain_attention(const Graph& canonical) {
  Graph g = canonical;
  const std::vector<int> producers = g.producers();
  for (Node& n : g.nodes) {
    if (n.op == "attention") n.attrs.erase("p");
    // Where attention was not found the weights are a product's own operand.
    if (n.op != "matmul" || !n.attrs.has("type.0") || !n.attrs.has("scale.0")) continue;
    const auto type = parse_quant_type(n.attrs.word("type.0"));
    if (!type || !are_weights(*type, n.attrs.number("scale.0")) || !is_softmax(g, producers, n.inputs[0])) continue;
    n.attrs.erase("type.0"), n.attrs.erase("scale.0");
  }
  return g;
}

}  // namespace tessera
