// SPDX-License-Identifier: Apache-2.0
#include "rewrite/fuse.h"

#include <algorithm>

#include "ir/layer_ops.h"
#include "ops/builder.h"
#include "rewrite/edit/replace.h"
#include "steps/step.h"

namespace tessera {
namespace {

// Maps that one step may be: more than any unfused form has.
constexpr size_t kMostMaps = 4;

// A map after a matmul, as a step's unfused form would have it.
struct SeenMap {
  size_t node;
  ValueId operand;  // beside what came before; kNoValue: none
};

class Fuser {
 public:
  explicit Fuser(Graph& graph) : g_(graph) {}

  Status run() {
    for (size_t i = 0; i < g_.nodes.size();) {
      TS_ASSIGN(const bool absorbed, absorb_next(i));
      // Having moved to its reader's place, the node is met again further on.
      if (!absorbed) ++i;
    }
    return {};
  }

 private:
  // The single node that reads v; nothing where there are several or the caller reads it.
  std::optional<size_t> only_reader(ValueId v) const {
    std::optional<size_t> found;
    if (std::find(g_.outputs.begin(), g_.outputs.end(), v) != g_.outputs.end()) return std::nullopt;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const int64_t times = std::count(g_.nodes[n].inputs.begin(), g_.nodes[n].inputs.end(), v);
      if (times == 0) continue;
      if (times > 1 || found) return std::nullopt;
      found = n;
    }
    return found;
  }

  // The view shows the same rows, grouped differently.
  bool keeps_rows(const Node& view) const {
    const Shape &from = g_.at(view.inputs[0]).type.shape, &to = g_.at(view.outputs[0]).type.shape;
    return !from.empty() && !to.empty() && from.back() == to.back() && elements(from) == elements(to) &&
           view.attrs.integer("offset") == 0 && is_dense(to, view.attrs.list("strides"));
  }

  Result<bool> absorb_next(size_t at) {
    if (!multiplies_weights(g_.nodes[at].op)) return false;
    ValueId y = g_.nodes[at].outputs[0];
    auto reader = only_reader(y);
    std::optional<size_t> view;
    if (reader && g_.nodes[*reader].op == "view" && keeps_rows(g_.nodes[*reader])) {
      view = reader;
      y = g_.nodes[*view].outputs[0];
      reader = only_reader(y);
    }
    if (!reader) return false;
    std::vector<SeenMap> seen;
    const std::vector<StepMap> maps = maps_after(y, *reader, &seen);
    const auto fused = find_fused(maps);
    if (!fused) return false;
    Step step = fused->step;
    const Program& then = g_.nodes[at].then;
    if (!then.empty() && then.steps.back().kind >= step.kind) return false;
    ValueId operand = operand_of(step.kind) == StepOperand::kNone ? kNoValue : seen[fused->operand].operand;
    std::vector<size_t> gone;
    for (size_t i = 0; i < fused->count; ++i) gone.push_back(seen[i].node);
    const ValueId result = g_.nodes[gone.back()].outputs[0];
    if (operand_of(step.kind) == StepOperand::kVector) {
      const bool constant = g_.at(operand).constant;
      GraphBuilder builder(g_, gone.back());
      TS_ASSIGN(operand, as_vector(builder, operand, g_.at(y).type.shape.back()));
      if (constant && !g_.at(operand).constant) return false;  // too large to be spelt out
      const size_t views = builder.position() - gone.back();   // a vector that is no constant is seen through one
      for (size_t& n : gone) n += n >= gone.back() ? views : 0;
    }
    Node node = g_.nodes[at];
    if (operand != kNoValue) {
      step.operand = static_cast<int>(node.inputs.size());
      node.inputs.push_back(operand);
    }
    node.then.steps.push_back(step);
    if (step.kind == StepKind::bias && g_.at(operand).constant && node.name.find('.') == std::string::npos) {
      const std::string layer = layer_of_constant(g_.at(operand));
      if (!layer.empty()) node.name = layer;
    }
    const size_t end = gone.back();
    gone.push_back(at);
    if (view) gone.push_back(*view);
    replace(gone, end, std::move(node), result);
    return true;
  }

  // The maps that follow y one after the other, each the only reader of what came before it and of the same type.
  std::vector<StepMap> maps_after(ValueId y, size_t reader, std::vector<SeenMap>* seen) const {
    std::vector<StepMap> maps;
    while (maps.size() < kMostMaps) {
      const Node& next = g_.nodes[reader];
      if (next.op != "map" || g_.at(next.outputs[0]).type != g_.at(y).type) break;
      SeenMap s{reader, kNoValue};
      const auto map = map_of(next, y, &s.operand);
      if (!map) break;
      maps.push_back(*map);
      seen->push_back(s);
      y = next.outputs[0];
      const auto after = only_reader(y);
      if (!after) break;
      reader = *after;
    }
    return maps;
  }

  // Nothing where the map has an operand that no step may have.
  std::optional<StepMap> map_of(const Node& map, ValueId y, ValueId* operand) const {
    StepMap m{map.attrs.word("fn")};
    if (map.inputs.size() == 1) return m;
    if (map.inputs.size() != 2) return std::nullopt;
    const bool first = map.inputs[0] == y, either = m.fn == "add" || m.fn == "mul" || m.fn == "min" || m.fn == "max";
    if (!first && !either) return std::nullopt;
    *operand = map.inputs[first ? 1 : 0];
    const Value& other = g_.at(*operand);
    const Shape &shape = g_.at(y).type.shape, &s = other.type.shape;
    if (shape.empty() || other.type.quant.scaled()) return std::nullopt;
    const int64_t n = elements(s);
    if (other.constant && n == 1) {
      m.with = StepMap::With::kNumber;
      m.number = g_.numbers(*operand)[0];
    } else if (n == shape.back() && s.back() == n && (other.constant || is_one_of_rows(*operand, shape))) {
      m.with = StepMap::With::kVector;
    } else if (repeats(s, shape) && other.type.quant == g_.at(y).type.quant) {
      m.with = StepMap::With::kMatrix;
    } else {
      return std::nullopt;
    }
    return m;
  }

  // One row for all rows of `shape`; where that has only one, it is a residual or the other factor of a gate. Kernels
  // may count on vectors that begin where rows of their storage begin.
  bool is_one_of_rows(ValueId v, const Shape& shape) const {
    const Placement p = placement_of(g_, g_.producers(), v);
    return shape.back() < elements(shape) && p.offset % shape.back() == 0 && is_dense(g_.at(v).type.shape, p.strides);
  }

  // The rows of s, from the first on, repeat over those of `shape`: axes of size 1 in front, then the same axes.
  static bool repeats(const Shape& s, const Shape& shape) {
    size_t lead = 0;
    while (lead < s.size() && s[lead] == 1) ++lead;
    const size_t same = s.size() - lead;
    return same > 0 && same <= shape.size() &&
           std::equal(s.begin() + static_cast<std::ptrdiff_t>(lead), s.end(),
                      shape.end() - static_cast<std::ptrdiff_t>(same)) &&
           s.back() == shape.back() && elements(s) > 0;
  }

  static Result<ValueId> as_vector(GraphBuilder& builder, ValueId v, int64_t cols) {
    if (elements(builder.shape(v)) == cols) return builder.reshape(v, {cols});
    TS_ASSIGN(const ValueId one, builder.reshape(v, {}));
    return builder.expand(one, {cols});
  }

  // The node takes the place `end` and the result of the last of those that are gone; a result of another shape is a
  // view of the node's own.
  void replace(const std::vector<size_t>& gone, size_t end, Node node, ValueId result) {
    std::vector<Node> made;
    if (g_.at(result).type.shape == g_.at(node.outputs[0]).type.shape) {
      node.outputs = {result};
      made.push_back(std::move(node));
    } else {
      const ValueId own = node.outputs[0];
      made.push_back(std::move(node));
      made.push_back({.name = {},
                      .op = "view",
                      .inputs = {own},
                      .outputs = {result},
                      .attrs = {{"strides", dense_strides(g_.at(result).type.shape)}, {"offset", int64_t{0}}},
                      .then = {},
                      .role = {},
                      .asked = {}});
    }
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (n == end) {
        for (Node& m : made) nodes.push_back(std::move(m));
      } else if (std::find(gone.begin(), gone.end(), n) == gone.end()) {
        nodes.push_back(std::move(g_.nodes[n]));
      }
    }
    g_.nodes = std::move(nodes);
  }

  Graph& g_;
};

}  // namespace

Status fuse(Graph& graph) { return Fuser(graph).run(); }

}  // namespace tessera
