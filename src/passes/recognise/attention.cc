// SPDX-License-Identifier: Apache-2.0
#include "ops/builder.h"
#include "passes/recognise/match.h"
#include "passes/recognise/recognise.h"
#include "passes/rewrite.h"

namespace tessera {
namespace {

struct Found {
  Place q, k, v;  // each [lead..., tokens, size]
  ValueId bias = kNoValue;
  double scale = 1;
};

class AttentionPattern {
 public:
  explicit AttentionPattern(const Graph& graph) : g_(graph), m_(graph) {}

  // node = softmax(...) @ v
  std::optional<Found> match(const Node& node) const {
    if (!is_product(node) || node.inputs[0] == kNoValue) return std::nullopt;
    const Node* softmax = m_.made_by(node.inputs[0], "softmax");
    if (softmax == nullptr) return std::nullopt;
    Found f;
    const Node* scores = find_scores(softmax->inputs[0], &f);
    if (scores == nullptr) return std::nullopt;
    f.q = without_scale(place(scores->inputs[0]), &f.scale);
    f.k = without_scale(place(scores->inputs[1]), &f.scale);
    f.v = place(node.inputs[1]);
    std::swap(f.v.region.shape.end()[-1], f.v.region.shape.end()[-2]);
    std::swap(f.v.region.strides.end()[-1], f.v.region.strides.end()[-2]);
    return f;
  }

 private:
  // A product of two activations, one per batch and head (or per batch).
  bool is_product(const Node& n) const {
    if (n.op != "matmul" || !n.then.empty() || n.inputs.size() != 2) return false;
    const size_t rank = g_.at(n.inputs[0]).type.shape.size();
    return (rank == 3 || rank == 4) && g_.at(n.inputs[1]).type.shape.size() == rank;
  }

  Place place(ValueId v) const {
    const Placement p = placement_of(g_, m_.producers(), v);
    return {p.base, {g_.at(v).type.shape, p.strides, p.offset}};
  }

  // v = x * number or x / number
  std::optional<Matcher::WithNumber> scaled(ValueId v) const {
    if (auto mul = m_.with_number(v, "mul")) return mul;
    auto div = m_.with_number(v, "div");
    if (!div || div->number == 0) return std::nullopt;
    div->number = 1 / div->number;
    return div;
  }

  // Back from the softmax over at most one addition and any scaling before it, to the product of q and k.
  const Node* find_scores(ValueId v, Found* f) const {
    if (const Node* add = m_.mapped(v, "add")) {
      for (const size_t at : {size_t{0}, size_t{1}}) {
        const ValueId bias = add->inputs[1 - at];
        if (g_.at(add->inputs[at]).type.shape != g_.at(v).type.shape) continue;
        Found inner;
        const Node* scores = plain_scores(add->inputs[at], &inner);
        if (scores == nullptr) continue;
        f->scale = inner.scale;
        f->bias = bias;
        return scores;
      }
      return nullptr;
    }
    return plain_scores(v, f);
  }
  const Node* plain_scores(ValueId v, Found* f) const {
    while (const auto outer = scaled(v)) {
      f->scale *= outer->number;
      v = outer->x;
    }
    const Node* n = m_.maker(v);
    return n != nullptr && is_product(*n) ? n : nullptr;
  }

  // Moves a scaling of the operand into the scale: what is read is the same part of what was scaled.
  Place without_scale(Place p, double* scale) const {
    while (const auto inner = scaled(p.base)) {
      const Place source = place(inner->x);
      const auto region = composed(source.region, p.region);
      if (!region) break;
      *scale *= inner->number;
      p = {source.base, *region};
    }
    return p;
  }

  const Graph& g_;
  Matcher m_;
};

// [b, h, t, d] -> [b, t, h, d]; [b, t, d] -> [b, t, 1, d]
Region tokens_first(const Region& r) {
  if (r.shape.size() == 4) return permuted(r, {0, 2, 1, 3});
  Region out = r;
  out.shape.insert(out.shape.begin() + 2, 1);
  out.strides.insert(out.strides.begin() + 2, r.shape[2] * r.strides[2]);
  return out;
}

}  // namespace

Status recognise_attention(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "matmul") continue;
    const auto found = AttentionPattern(graph).match(graph.nodes[i]);
    if (!found) continue;
    const ValueId old = graph.nodes[i].outputs[0];
    const size_t rank = graph.at(old).type.shape.size();
    GraphBuilder builder(graph, i);
    std::vector<ValueId> operands;
    for (const Place* p : {&found->q, &found->k, &found->v}) {
      TS_ASSIGN(const ValueId v, builder.view(p->base, tokens_first(p->region)));
      operands.push_back(v);
    }
    if (found->bias != kNoValue) {
      ValueId bias = found->bias;
      if (rank == 3 && builder.rank(bias) == 3) {
        TS_ASSIGN(bias, builder.unsqueeze(bias, {1}));
      }
      operands.push_back(bias);
    }
    const std::string name = parent_layer(graph.nodes[builder.position()].name, "attention");
    TS_ASSIGN(ValueId y, builder.emit("attention", operands, {{"scale", found->scale}}, name));
    if (rank == 4) {
      TS_ASSIGN(y, builder.permute(y, {0, 2, 1, 3}));
    } else {
      TS_ASSIGN(y, builder.squeeze(y, {2}));
    }
    TS_TRY(take_over(builder, old, y));
    i = builder.position();
  }
  return {};
}

}  // namespace tessera
