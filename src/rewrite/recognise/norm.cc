// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/builder.h"
#include "rewrite/edit/match.h"
#include "rewrite/edit/replace.h"
#include "rewrite/recognise/recognise.h"

namespace tessera {
namespace {

struct Found {
  ValueId x = kNoValue;
  bool layer = false;  // the mean is taken off
  double eps = 0;
};

class NormPattern {
 public:
  explicit NormPattern(const Graph& graph) : g_(graph), m_(graph) {}

  // v = x / sqrt(var + eps), or x * its inverse.
  std::optional<Found> match(ValueId v) const {
    if (const Node* div = m_.mapped(v, "div"); div != nullptr && is_by_row(div->inputs[1], div->inputs[0])) {
      if (const auto under = root(div->inputs[1])) return normalised(div->inputs[0], *under);
    }
    if (const Node* mul = m_.mapped(v, "mul")) {
      for (const size_t at : {size_t{0}, size_t{1}}) {
        if (!is_by_row(mul->inputs[1 - at], mul->inputs[at])) continue;
        if (const auto under = inverse_root(mul->inputs[1 - at])) return normalised(mul->inputs[at], *under);
      }
    }
    return std::nullopt;
  }

 private:
  // [..., 1] beside x of [..., n].
  bool is_by_row(ValueId v, ValueId x) const {
    Shape kept = g_.at(x).type.shape;
    if (kept.empty()) return false;
    kept.back() = 1;
    return g_.at(v).type.shape == kept;
  }

  // Numbers of rows may pass through values of another shape (with channels in front, an axis of one element): the
  // value that owns the storage where v has all of it, in order.
  ValueId in_order(ValueId v) const {
    const Place p = m_.place(v);
    return p.region.whole() && elements(p.region.shape) == elements(g_.at(p.base).type.shape) ? p.base : v;
  }

  // What v is the square root of.
  std::optional<ValueId> root(ValueId v) const {
    v = in_order(v);
    if (const Node* sqrt = m_.mapped(v, "sqrt")) return sqrt->inputs[0];
    if (const auto pow = m_.with_number(v, "pow"); pow && pow->number == 0.5) return pow->x;
    return std::nullopt;
  }
  std::optional<ValueId> inverse_root(ValueId v) const {
    v = in_order(v);
    if (const Node* rsqrt = m_.mapped(v, "rsqrt")) return rsqrt->inputs[0];
    if (const Node* inverse = m_.mapped(v, "reciprocal")) return root(inverse->inputs[0]);
    if (const auto pow = m_.with_number(v, "pow"); pow && pow->number == -0.5) return pow->x;
    if (const Node* div = m_.mapped(v, "div"); div != nullptr && m_.number(div->inputs[0]) == 1.0)
      return root(div->inputs[1]);
    return std::nullopt;
  }

  std::optional<Found> normalised(ValueId x, ValueId under) const {
    Found f;
    if (const auto add = m_.with_number(in_order(under), "add")) {
      f.eps = add->number;
      under = add->x;
    }
    const auto squares = mean_over_last(under);
    if (!squares || f.eps < 0) return std::nullopt;
    const auto centred = square_root_of(*squares);
    if (!centred || !same(*centred, x)) return std::nullopt;
    const Node* sub = m_.mapped(x, "sub");
    const auto averaged =
        sub != nullptr && is_by_row(sub->inputs[1], x) ? mean_over_last(sub->inputs[1]) : std::nullopt;
    f.layer = averaged && *averaged == sub->inputs[0];
    f.x = f.layer ? sub->inputs[0] : x;
    return f;
  }

  // v = the mean of the result over its last axis, a number for each row in order.
  std::optional<ValueId> mean_over_last(ValueId v) const {
    const Node* reduce = m_.made_by(in_order(v), "reduce");
    if (reduce == nullptr || reduce->attrs.word("fn") != "mean") return std::nullopt;
    return reduce->inputs[0];
  }

  std::optional<ValueId> square_root_of(ValueId v) const {
    if (const auto pow = m_.with_number(v, "pow"); pow && pow->number == 2) return pow->x;
    if (const Node* mul = m_.mapped(v, "mul"); mul != nullptr && mul->inputs[0] == mul->inputs[1])
      return mul->inputs[0];
    return std::nullopt;
  }

  // The same value, or the same difference written twice.
  bool same(ValueId a, ValueId b) const {
    if (a == b) return true;
    const Node *p = m_.mapped(a, "sub"), *q = m_.mapped(b, "sub");
    return p != nullptr && q != nullptr && p->inputs == q->inputs;
  }

  const Graph& g_;
  Matcher m_;
};

// Lets a norm take over the multiplication (operand 1) or addition (operand 2) of a constant vector that follows it
// alone.
Status absorb(Graph& graph, ValueId y, const char* fn, size_t operand) {
  const Matcher m(graph);
  const std::vector<size_t> readers = m.readers(y);
  if (readers.size() != 1 || std::find(graph.outputs.begin(), graph.outputs.end(), y) != graph.outputs.end()) return {};
  const Node next = graph.nodes[readers[0]];
  if (next.op != "map" || next.attrs.word("fn") != fn || next.inputs[0] == next.inputs[1]) return {};
  const ValueId other = next.inputs[next.inputs[0] == y ? 1 : 0];
  const Type type = graph.at(y).type;
  if (!m.is_vector(other, type.shape) || graph.at(next.outputs[0]).type != type) return {};
  GraphBuilder builder(graph, static_cast<size_t>(m.producers()[static_cast<size_t>(y)]));
  const std::string layer = layer_of_constant(graph.at(other));
  ValueId vector = other;
  if (elements(graph.at(other).type.shape) == 1 && type.shape.back() != 1) {
    TS_ASSIGN(vector, builder.reshape(vector, {}));
    TS_ASSIGN(vector, builder.expand(vector, {type.shape.back()}));
  } else {
    TS_ASSIGN(vector, builder.reshape(vector, {type.shape.back()}));
  }
  if (!graph.at(vector).constant) return {};
  Node& norm = graph.nodes[builder.position()];
  if (norm.inputs.size() <= operand) norm.inputs.resize(operand + 1, kNoValue);
  norm.inputs[operand] = vector;
  if (!layer.empty()) norm.name = layer;
  GraphBuilder after(graph, builder.position() + 1);
  TS_TRY(take_over(after, next.outputs[0], y));
  graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(readers[0]));
  return {};
}

}  // namespace

Status recognise_norm(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "map") continue;
    const ValueId old = graph.nodes[i].outputs[0];
    const auto found = NormPattern(graph).match(old);
    if (!found || graph.at(found->x).type != graph.at(old).type) continue;
    const std::string name = parent_layer(graph.nodes[i].name, "norm");
    GraphBuilder builder(graph, i);
    TS_ASSIGN(const ValueId y,
              builder.emit("norm", {found->x},
                           {{"kind", std::string(found->layer ? "layer" : "rms")}, {"eps", found->eps}}, name));
    TS_TRY(take_over(builder, old, y));
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(
                                                builder.position()));  // it has no reader, and it must not match again
    TS_TRY(absorb(graph, y, "mul", 1));
    TS_TRY(absorb(graph, y, "add", 2));
  }
  return {};
}

}  // namespace tessera
