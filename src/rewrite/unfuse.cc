// SPDX-License-Identifier: Apache-2.0
#include "rewrite/unfuse.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ir/layer_ops.h"
#include "ir/padding.h"
#include "ops/runnable.h"
#include "steps/step.h"

namespace tessera {
namespace {

// Whether its program ends with a static rounding, which a copy may do instead.
bool makes_codes(const Node& layer) {
  return !layer.then.empty() && layer.then.steps.back().kind == StepKind::quantize;
}

// What a copy may make the codes of: the layer's own 16 bits or the carrier, where they hold all that the codes do.
std::vector<QuantType> types_before_codes(const Graph& graph, const Node& layer, Element carrier) {
  const Value& y = graph.at(layer.outputs[0]);
  const std::vector<double> scale = y.scale == kNoValue ? std::vector<double>() : graph.numbers(y.scale);
  const double largest = scale.size() == 1 ? scale[0] * info(y.type.quant.element).max : 0;
  std::vector<QuantType> types;
  for (const Element e : {graph.at(layer.inputs[0]).type.quant.element, carrier}) {
    const bool plain = info(e).kind == ElementKind::kFloat && info(e).bits >= 16;
    if (plain && largest <= info(e).max && std::find(types.begin(), types.end(), QuantType(e)) == types.end())
      types.push_back(e);
  }
  return types;
}

class Splitter {
 public:
  Splitter(const Graph& graph, size_t node, Arch target)
      : g_(graph), at_(node), layer_(graph.nodes[node]), y_(layer_.outputs[0]), target_(target) {}

  // The graph in which the node keeps its first `kept` steps and writes `type`; nothing where a kernel is missing.
  std::optional<Graph> split(size_t kept, const QuantType& type) {
    const std::vector<int> producers = g_.producers();
    ValueId from = product(kept, type);
    std::vector<std::pair<const Step*, StepMap>> maps;
    const bool codes = makes_codes(layer_);
    for (size_t s = kept; s + codes < layer_.then.steps.size(); ++s) {
      const Step& step = layer_.then.steps[s];
      for (StepMap& map : info(step.kind).unfused(step)) maps.emplace_back(&step, std::move(map));
    }
    for (const auto& [step, form] : maps) {
      Node map{.name = name(cat(layer_.name, ".", name_of(step->kind))), .op = "map", .inputs = {from}};
      map.attrs.set("fn", form.fn);
      if (const auto padded = layer_.attrs.list(kPaddedRows); !padded.empty()) map.attrs.set(kPaddedRows, padded);
      if (form.with == StepMap::With::kNumber) {
        map.inputs.push_back(g_.add_constant(cat(map.name, ".number"), Shape{}, {static_cast<float>(form.number)}));
      } else if (form.with != StepMap::With::kNothing) {
        const auto operand = as_result(producers, layer_.inputs[static_cast<size_t>(step->operand)]);
        if (!operand) return std::nullopt;
        map.inputs.push_back(*operand);
      }
      from = &form == &maps.back().second && !codes ? y_ : value(cat(g_.at(y_).name, ".", name_of(step->kind)), type);
      map.outputs = {from};
      made_.push_back(std::move(map));
    }
    if (from != y_)
      made_.push_back({.name = name(layer_.name + (codes ? ".quantize" : ".cast")),
                       .op = "copy",
                       .inputs = {from},
                       .outputs = {y_}});
    g_.nodes.erase(g_.nodes.begin() + static_cast<std::ptrdiff_t>(at_));
    g_.nodes.insert(g_.nodes.begin() + static_cast<std::ptrdiff_t>(at_), made_.begin(), made_.end());
    const std::vector<int> now = g_.producers();
    for (const Node& n : made_) {
      if (n.op != "view" && !runnable(g_, now, n, target_)) return std::nullopt;
    }
    return std::move(g_);
  }

 private:
  // The stem, or with the first number behind it that no other has.
  static std::string unique(const std::string& stem, const std::set<std::string>& taken) {
    std::string name = stem;
    for (int i = 2; taken.contains(name); ++i) name = cat(stem, "_", i);
    return name;
  }

  ValueId value(const std::string& stem, const QuantType& type) {
    std::set<std::string> taken;
    for (const Value& v : g_.values) taken.insert(v.name);
    Value v;
    v.name = unique(stem, taken);
    v.type = {g_.at(y_).type.shape, type};
    return g_.add_value(std::move(v));
  }

  std::string name(const std::string& stem) {
    std::set<std::string> taken;
    for (const std::vector<Node>* nodes : {&g_.nodes, &made_}) {
      for (const Node& n : *nodes) taken.insert(n.name);
    }
    return unique(stem, taken);
  }

  // The layer with the steps that it keeps, and its result.
  ValueId product(size_t kept, const QuantType& type) {
    Node node = layer_;
    node.inputs.resize(2);
    node.then.steps.resize(kept);
    for (Step& s : node.then.steps) {
      if (s.operand < 0) continue;
      node.inputs.push_back(layer_.inputs[static_cast<size_t>(s.operand)]);
      s.operand = static_cast<int>(node.inputs.size()) - 1;
    }
    node.outputs = {value(g_.at(y_).name + ".product", type)};
    made_.push_back(node);
    return node.outputs[0];
  }

  // The operand as a map reads it beside the result: one that broadcasts does so as it is, rows in another grouping are
  // seen through a view.
  std::optional<ValueId> as_result(const std::vector<int>& producers, ValueId operand) {
    const Shape &s = g_.at(operand).type.shape, &y = g_.at(y_).type.shape;
    const size_t lead = y.size() - std::min(s.size(), y.size());
    if (s.size() <= y.size() && std::equal(s.begin(), s.end(), y.begin() + static_cast<std::ptrdiff_t>(lead)))
      return operand;
    const Placement p = placement_of(g_, producers, operand);
    if (g_.at(operand).constant || elements(s) != elements(y) || !is_dense(s, p.strides)) return std::nullopt;
    const ValueId seen = value(g_.at(operand).name + ".view", g_.at(operand).type.quant);
    const Attrs attrs{{"strides", dense_strides(y)}, {"offset", p.offset}};
    made_.push_back({.name = {}, .op = "view", .inputs = {p.base}, .outputs = {seen}, .attrs = attrs});
    return seen;
  }

  Graph g_;
  const size_t at_;
  const Node layer_;
  const ValueId y_;
  const Arch target_;
  std::vector<Node> made_;
};

std::optional<Graph> unfused(const Graph& graph, size_t at, Arch target, Element carrier) {
  const Node& node = graph.nodes[at];
  const bool codes = makes_codes(node);
  const bool all_maps = std::all_of(node.then.steps.begin(), node.then.steps.end() - codes,
                                    [](const Step& s) { return info(s.kind).unfused != nullptr; });
  if (!multiplies_weights(node.op) || node.outputs.size() > 1 || !all_maps) return std::nullopt;
  const QuantType y = graph.at(node.outputs[0]).type.quant;
  std::vector<QuantType> types = {y};
  if (codes) types = types_before_codes(graph, node, carrier);
  if (y == QuantType(Element::f32) && carrier != Element::f32) types.push_back(carrier);
  const size_t steps = node.then.steps.size() - codes;
  for (const QuantType& type : types) {
    for (size_t given = type == y ? 1 : 0; given <= steps; ++given) {
      if (auto split = Splitter(graph, at, target).split(steps - given, type)) return split;
    }
  }
  return std::nullopt;
}

}  // namespace

bool runs_unfused(const Graph& graph, size_t node, Arch target, Element carrier) {
  return unfused(graph, node, target, carrier).has_value();
}

void unfuse(Graph& graph, Arch target, Element carrier) {
  std::vector<int> producers = graph.producers();
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!multiplies_weights(graph.nodes[n].op) || runnable(graph, producers, graph.nodes[n], target)) continue;
    if (auto split = unfused(graph, n, target, carrier)) {
      graph = *std::move(split);
      producers = graph.producers();
    }
  }
}

}  // namespace tessera
