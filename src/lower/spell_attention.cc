// SPDX-License-Identifier: Apache-2.0
#include "lower/spell_attention.h"

#include <algorithm>

#include "lower/pad_layer.h"
#include "ops/runnable.h"
#include "rewrite/edit/match.h"
#include "rewrite/materialise.h"

namespace tessera {
namespace {

// One attention, spelt out in a graph of its own, which is taken where kernels run all of it.
class Speller {
 public:
  Speller(const Graph& graph, size_t node) : g_(graph), at_(node), node_(graph.nodes[node]), m_(graph) {}

  bool may() const {
    const Shape &q = shape(node_.inputs[0]), &k = shape(node_.inputs[1]);
    const bool bare =
        node_.then.empty() || (node_.then.steps.size() == 1 && node_.then.steps[0].kind == StepKind::quantize);
    const bool alone =
        std::all_of(node_.inputs.begin() + 3, node_.inputs.end(), [](ValueId v) { return v == kNoValue; });
    const QuantType& type = g_.at(node_.inputs[0]).type.quant;
    const auto alike = [&](size_t i) { return g_.at(node_.inputs[i]).type.quant == type; };
    return bare && alone && !node_.attrs.has("p") && node_.attrs.integer("causal") == 0 && q[2] == k[2] &&
           !type.scaled() && alike(1) && alike(2) && node_.outputs.size() == 1;
  }

  Result<Graph> spell() {
    const Shape q = shape(node_.inputs[0]), k = shape(node_.inputs[1]), v = shape(node_.inputs[2]);
    const QuantType type = g_.at(node_.inputs[0]).type.quant;
    const int64_t batch = q[0], queries = q[1], heads = q[2], keys = k[1];
    const ValueId scores = add(".scores", {{batch, heads, queries, keys}, type});
    Node product = node(".scores", "matmul", {turned(0, {0, 2, 1, 3}), turned(1, {0, 2, 1, 3})}, scores);
    product.inputs.push_back(factors(keys));
    product.then.steps.push_back({.kind = StepKind::scale, .operand = 2});
    made_.push_back(std::move(product));
    const ValueId weights = add(".softmax", {shape(scores), type});
    made_.push_back(node(".softmax", "softmax", {scores}, weights));
    const ValueId sums = add(".sums", {{batch, heads, queries, v[3]}, type});
    made_.push_back(node(".sums", "matmul", {weights, turned(2, {0, 2, 3, 1})}, sums));
    const Region back = permuted(dense_region(shape(sums)), {0, 2, 1, 3});
    const ValueId seen = add(".turned", {back.shape, type});
    made_.push_back(view_node(sums, seen, back));
    made_.push_back(node("", "copy", {seen}, node_.outputs[0]));
    g_.nodes.erase(g_.nodes.begin() + static_cast<std::ptrdiff_t>(at_));
    g_.nodes.insert(g_.nodes.begin() + static_cast<std::ptrdiff_t>(at_), made_.begin(), made_.end());
    TS_TRY(materialise(g_));
    return std::move(g_);
  }

 private:
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }
  ValueId add(const std::string& name, Type type) {
    Value value;
    value.name = node_.name + name;
    value.type = std::move(type);
    return g_.add_value(std::move(value));
  }
  Node node(const std::string& name, const std::string& op, std::vector<ValueId> in, ValueId out) const {
    return {.name = node_.name + name, .op = op, .inputs = std::move(in), .outputs = {out}};
  }
  // An operand with its axes in this order.
  ValueId turned(size_t operand, const std::vector<int64_t>& order) {
    const Place place = m_.place(node_.inputs[operand]);
    const Region region = permuted(place.region, order);
    static constexpr const char* kNames[] = {".q", ".k", ".v"};
    const ValueId view = add(kNames[operand], {region.shape, g_.at(node_.inputs[operand]).type.quant});
    made_.push_back(view_node(place.base, view, region));
    return view;
  }
  // The scale of the scores, for each key; in f32, as attention has it.
  ValueId factors(int64_t keys) {
    const std::vector<float> numbers(static_cast<size_t>(keys), static_cast<float>(node_.attrs.number("scale", 1.0)));
    return g_.add_constant(node_.name + ".scale", {keys}, numbers);
  }

  Graph g_;
  const size_t at_;
  const Node node_;
  const Matcher m_;
  std::vector<Node> made_;
};

// Whether a kernel does: what is written in f32, a result of the model, is asked in the type of q.
bool is_taken(const Graph& graph, const Node& attention, Arch target) {
  Problem problem = problem_of(graph, graph.producers(), attention);
  if (!problem.out[0].type.scaled()) problem.out[0].type = problem.in[0].type;
  return runnable(problem, target);
}

}  // namespace

Status spell_attention(Graph& graph, Arch target) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op != "attention" || is_taken(graph, graph.nodes[n], target)) continue;
    Speller speller(graph, n);
    if (!speller.may()) continue;
    const std::string name = graph.nodes[n].name;
    TS_ASSIGN(Graph spelt, speller.spell());
    const std::vector<int> producers = spelt.producers();
    const bool runs = std::all_of(spelt.nodes.begin(), spelt.nodes.end(), [&](const Node& node) {
      return node.op == "view" || !node.name.starts_with(name) || runnable(spelt, producers, node, target);
    });
    if (runs) graph = std::move(spelt);
  }
  return {};
}

}  // namespace tessera
