// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "rewrite/edit/match.h"
#include "rewrite/recognise/recognise.h"

namespace tessera {
namespace {

// A map that multiplies (operand 1 of the norm) or adds (operand 2) one row to all rows of a norm's result.
struct Modulated {
  size_t norm, map, operand;
  ValueId row;
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : g_(graph), m_(graph), uses_(graph.use_counts()) {}

  std::optional<Modulated> find() const {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& map = g_.nodes[n];
      const std::string fn = map.attrs.word("fn");
      if (map.op != "map" || map.inputs.size() != 2 || (fn != "mul" && fn != "add")) continue;
      for (const size_t at : {size_t{0}, size_t{1}}) {
        const size_t operand = fn == "mul" ? 1 : 2;
        const auto norm = norm_before(map, map.inputs[at], operand);
        const bool constant = g_.at(m_.place(map.inputs[1 - at]).base).constant;
        if (norm && !constant && is_row(map.inputs[1 - at], g_.at(map.outputs[0]).type))
          return Modulated{*norm, n, operand, map.inputs[1 - at]};
      }
    }
    return std::nullopt;
  }

 private:
  // The norm whose whole result y is, read by this map alone, that has nothing yet in the operand's place or after it.
  std::optional<size_t> norm_before(const Node& map, ValueId y, size_t operand) const {
    const Node* norm = m_.made_by(y, "norm");
    if (norm == nullptr || uses_[static_cast<size_t>(y)] != 1 || norm->attrs.integer("pooled") != 0)
      return std::nullopt;
    for (size_t i = operand; i < norm->inputs.size(); ++i) {
      if (norm->inputs[i] != kNoValue) return std::nullopt;
    }
    if (g_.at(y).type != g_.at(map.outputs[0]).type) return std::nullopt;
    return static_cast<size_t>(norm - g_.nodes.data());
  }

  bool is_row(ValueId v, const Type& y) const {
    const Type& type = g_.at(v).type;
    const int64_t cols = y.shape.empty() ? 0 : y.shape.back();
    return !type.shape.empty() && type.shape.back() == cols && elements(type.shape) == cols &&
           cols < elements(y.shape) && type.quant == y.quant && !type.quant.scaled();
  }

  const Graph& g_;
  const Matcher m_;
  const std::vector<int> uses_;
};

}  // namespace

Status recognise_modulation(Graph& graph) {
  while (const auto found = Finder(graph).find()) {
    // In the map's place: its row may be made after the norm.
    GraphBuilder builder(graph, found->map);
    const ValueId y = graph.nodes[found->map].outputs[0];
    TS_ASSIGN(const ValueId row, builder.reshape(found->row, {graph.at(y).type.shape.back()}));
    Node norm = graph.nodes[found->norm];
    norm.inputs.resize(std::max(norm.inputs.size(), found->operand + 1), kNoValue);
    norm.inputs[found->operand] = row;
    norm.outputs = {y};
    graph.nodes[builder.position()] = std::move(norm);
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(found->norm));
  }
  return {};
}

}  // namespace tessera
