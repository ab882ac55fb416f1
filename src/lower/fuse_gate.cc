// SPDX-License-Identifier: Apache-2.0
#include "lower/fuse_gate.h"

#include <algorithm>

#include "lower/joined_rows.h"
#include "ops/runnable.h"
#include "rewrite/drop_dead.h"
#include "rewrite/edit/match.h"

namespace tessera {
namespace {

// What becomes one matmul. The halves of one layer are that layer twice.
struct Gated {
  size_t product;         // the node that multiplies
  const Node *gate, *up;  // the layers; f works on the gate's result
  Unary fn;
  bool second = false;            // one layer: f works on the second half of its columns
  const Node* rounded = nullptr;  // the copy that makes codes of the product
};

class GateFuser {
 public:
  GateFuser(Graph& graph, Arch target) : g_(graph), target_(target), m_(graph), uses_(graph.use_counts()) {}

  bool fuse_one() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op != "map" || node.attrs.word("fn") != "mul" || node.inputs.size() != 2) continue;
      const Shape& y = shape(node.outputs[0]);
      if (shape(node.inputs[0]) != y || shape(node.inputs[1]) != y || y.empty()) continue;
      for (const size_t first : {size_t{0}, size_t{1}}) {
        auto found = match_layers(n, node.inputs[first], node.inputs[1 - first]);
        if (!found) found = match_halves(n, node.inputs[first], node.inputs[1 - first]);
        if (!found || !runs_somewhere(*found)) continue;
        rewrite(*found);
        return true;
      }
    }
    return false;
  }

 private:
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }
  bool read_once(ValueId v) const { return uses_[static_cast<size_t>(v)] == 1; }
  static const Step* bias_of(const Node& layer) { return layer.then.find(StepKind::bias); }
  // Of the norm that is folded into the layer.
  static ValueId moments(const Node& layer) {
    const Step* step = layer.then.find(StepKind::normalise);
    return step == nullptr ? kNoValue : layer.inputs[static_cast<size_t>(step->operand)];
  }
  const Value& weight(const Node& layer) const { return g_.at(layer.inputs[1]); }
  // Rows of w that make one half.
  int64_t half_rows(const Gated& f) const { return weight(*f.gate).type.shape[0] / (f.gate == f.up ? 2 : 1); }

  // The layer whose whole result v is, in any grouping of its rows, where it has no other reader.
  const Node* layer_behind(ValueId v) const {
    const Place p = m_.place(v);
    const Node* layer = m_.maker(p.base);
    const bool whole = p.region.whole() && elements(p.region.shape) == elements(shape(p.base)) &&
                       !p.region.shape.empty() && p.region.shape.back() == shape(p.base).back();
    return whole && read_once(v) && read_once(p.base) && layer != nullptr && has_rows(g_, *layer) ? layer : nullptr;
  }
  const Value& vector(const Node& layer, const Step& step) const {
    return g_.at(layer.inputs[static_cast<size_t>(step.operand)]);
  }

  std::optional<Gated> match_layers(size_t product, ValueId activated, ValueId other) const {
    const Node *gate = layer_behind(activated), *up = layer_behind(other);
    if (gate == nullptr || up == nullptr || gate == up) return std::nullopt;
    if (!gate->then.within({StepKind::normalise, StepKind::bias, StepKind::act}) ||
        !up->then.within({StepKind::normalise, StepKind::bias}) || moments(*gate) != moments(*up))
      return std::nullopt;
    const Step* act = gate->then.find(StepKind::act);
    if (act == nullptr || !fit_together(g_, *gate, *up) || weight(*gate).type.shape != weight(*up).type.shape)
      return std::nullopt;
    const Gated f{.product = product, .gate = gate, .up = up, .fn = act->fn};
    return vectors_fit_together(g_, m_.producers(), rows(f)) ? std::optional(f) : std::nullopt;
  }

  std::optional<Gated> match_halves(size_t product, ValueId activated, ValueId other) const {
    const Node* act = m_.made_by(activated, "map");
    if (act == nullptr || act->inputs.size() != 1 || !read_once(activated) || !read_once(other)) return std::nullopt;
    const auto fn = find_unary(act->attrs.word("fn"));
    const Place a = m_.place(act->inputs[0]), b = m_.place(other);
    const Node* layer = m_.maker(a.base);
    if (!fn || a.base != b.base || layer == nullptr || !has_rows(g_, *layer) ||
        !layer->then.within({StepKind::normalise, StepKind::bias}))
      return std::nullopt;
    // Two views of the layer's result, which has no other readers, and of each no reader but these two.
    if (uses_[static_cast<size_t>(a.base)] != 2 || !read_once(act->inputs[0])) return std::nullopt;
    const int64_t cols = shape(a.base).back(), half = cols / 2;
    for (const Region* r : {&a.region, &b.region}) {
      const RowView rows = as_rows(r->shape, r->strides);
      const bool fits = cols % 2 == 0 && rows.uniform && rows.cols == half &&
                        rows.rows * cols == elements(shape(a.base)) && (rows.rows == 1 || rows.row_stride == cols);
      if (!fits) return std::nullopt;
    }
    if (a.region.offset + b.region.offset != half || (a.region.offset != 0 && b.region.offset != 0))
      return std::nullopt;
    const Gated f{.product = product, .gate = layer, .up = layer, .fn = *fn, .second = a.region.offset != 0};
    return vectors_fit_together(g_, m_.producers(), rows(f)) ? std::optional(f) : std::nullopt;
  }

  // Finds out whether the codes that a copy makes of the product can be made at once.
  bool runs_somewhere(Gated& f) const {
    const Node& product = g_.nodes[f.product];
    const ValueId y = product.outputs[0];
    if (g_.at(y).type.quant != g_.at(f.gate->outputs[0]).type.quant) return false;
    const std::vector<size_t> readers = m_.readers(y);
    if (readers.size() == 1 && read_once(y)) {
      const Node& copy = g_.nodes[readers[0]];
      const Type& codes = g_.at(copy.outputs[0]).type;
      if (copy.op == "copy" && copy.then.empty() && codes.quant.scaled() && codes.shape == shape(y)) f.rounded = &copy;
    }
    if (f.rounded != nullptr && runnable(problem(f), target_)) return true;
    f.rounded = nullptr;
    return runnable(problem(f), target_);
  }

  Program program(const Gated& f) const {
    Program then;
    int operand = 2;
    if (moments(*f.gate) != kNoValue) then.steps.push_back({.kind = StepKind::normalise, .operand = operand++});
    if (bias_of(*f.gate) != nullptr || bias_of(*f.up) != nullptr)
      then.steps.push_back({.kind = StepKind::bias, .operand = operand++});
    then.steps.push_back({.kind = StepKind::gate, .fn = f.fn});
    if (f.rounded != nullptr) then.steps.push_back({.kind = StepKind::quantize});
    return then;
  }
  Type result(const Gated& f) const {
    const ValueId made = f.rounded != nullptr ? f.rounded->outputs[0] : g_.nodes[f.product].outputs[0];
    Type type{shape(f.gate->outputs[0]), g_.at(made).type.quant};
    type.shape.back() = half_rows(f);
    return type;
  }
  // As the matmul will pose it, before any weight is moved.
  Problem problem(const Gated& f) const {
    Problem p = problem_of(g_, m_.producers(), *f.gate);
    const Step* normalise = f.gate->then.find(StepKind::normalise);
    const Operand factors = normalise == nullptr ? Operand{} : p.step_operand(*normalise);
    p.then = program(f);
    p.in.resize(2);
    p.in[1] = dense_operand({2 * half_rows(f), p.in[1].shape[1]}, p.in[1].type, true);
    if (normalise != nullptr) p.in.push_back(factors);
    const Node& biased = bias_of(*f.gate) != nullptr ? *f.gate : *f.up;
    if (const Step* bias = bias_of(biased))
      p.in.push_back(
          dense_operand({2 * half_rows(f)}, vector(biased, *bias).type.quant, vector(biased, *bias).constant));
    const Type y = result(f);
    p.out = {dense_operand(y.shape, y.quant)};
    return p;
  }

  // The gate's half first.
  std::vector<LayerRows> rows(const Gated& f) const {
    const int64_t half = half_rows(f);
    const bool one = f.gate == f.up;
    return {{f.gate, f.second ? half : 0, half}, {f.up, one && !f.second ? half : 0, half}};
  }

  void rewrite(const Gated& f) {
    const std::vector<LayerRows> both = rows(f);
    const bool as_they_lie = f.gate == f.up && !f.second;
    Node node{.name = join_names(std::vector{f.gate->name, f.up->name}),
              .op = "matmul",
              .inputs = {f.gate->inputs[0]},
              .outputs = {},
              .attrs = f.gate->attrs,
              .then = program(f),
              .role = f.gate->role,
              .asked = f.gate->asked};
    const Type made = result(f);
    const ValueId y = f.rounded != nullptr ? f.rounded->outputs[0] : g_.nodes[f.product].outputs[0];
    const size_t rounded = f.rounded != nullptr ? static_cast<size_t>(f.rounded - g_.nodes.data()) : f.product;
    node.inputs.push_back(as_they_lie ? f.gate->inputs[1] : join_weights(g_, both));
    std::vector<Node> nodes;
    if (moments(*f.gate) != kNoValue) node.inputs.push_back(moments(*f.gate));
    if (node.then.find(StepKind::bias) != nullptr) node.inputs.push_back(join_vectors(g_, both, StepKind::bias, nodes));
    if (made.shape == shape(y)) {
      node.outputs = {y};
      nodes.push_back(std::move(node));
    } else {  // readers know its rows in another grouping
      Value own = g_.at(y);
      own.name += ".rows";
      own.type = made;
      node.outputs = {g_.add_value(std::move(own))};
      const Attrs whole{{"strides", dense_strides(shape(y))}, {"offset", int64_t{0}}};
      Node view{.name = {}, .op = "view", .inputs = node.outputs, .outputs = {y}, .attrs = whole};
      nodes.push_back(std::move(node));
      nodes.push_back(std::move(view));
    }
    std::vector<Node> all;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (n == f.product) {
        for (Node& m : nodes) all.push_back(std::move(m));
      } else if (n != rounded) {
        all.push_back(std::move(g_.nodes[n]));
      }
    }
    g_.nodes = std::move(all);
  }

  Graph& g_;
  const Arch target_;
  const Matcher m_;
  const std::vector<int> uses_;
};

}  // namespace

Status fuse_gate(Graph& graph, Arch target) {
  while (GateFuser(graph, target).fuse_one())
    TS_TRY(drop_dead(graph));  // what was joined: a layer that is left would count as a reader
  return {};
}

}  // namespace tessera
