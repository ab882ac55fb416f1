// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "ops/attention/attention.h"
#include "rewrite/edit/replace.h"
#include "rewrite/recognise/recognise.h"
#include "rewrite/recognise/score_chain.h"

namespace tessera {
namespace {

// A key that is hidden by this or less has a probability of 0 beside one that is not: scores stay far below 1e9.
constexpr double kUnseen = -1e9;

struct Found {
  Place q, k, v;  // [b, heads, tokens, size] each; k and v with their own number of heads
  bool q_typed = false, k_typed = false, v_typed = false;  // read as codes: as they are, not as they are before scaling
  ScoreChain scores;
  int64_t batch = 0, heads = 0;
};

// [b, heads, tokens, size] and [b, tokens, heads, size]
Region tokens_first(const Region& r) { return permuted(r, {0, 2, 1, 3}); }
Region heads_first(const Region& r) { return permuted(r, {0, 2, 1, 3}); }

// Whether attention computes with the types that its two products were given (those without one are floats).
bool takes_types(const Node& scores, const Node& sum) {
  for (const auto& [node, key] : {std::pair(&scores, "type.0"), {&scores, "type.1"}, {&sum, "type.1"}}) {
    if (!node->attrs.has(key)) continue;
    const auto type = parse_quant_type(node->attrs.word(key));
    if (!type || !is_attention_operand(*type)) return false;
  }
  if (!sum.attrs.has("type.0")) return true;
  // Rounded probabilities are part of an attention in codes; beside scores in numbers they stay a product's own.
  const auto p = parse_quant_type(sum.attrs.word("type.0"));
  return p && is_attention_weight(*p) && is_scale_of_weights(sum.attrs.number("scale.0"), p->element) &&
         scores.attrs.has("type.0");
}

// How many leading axes of scores over [..., queries, keys] are the batch; the others are heads. 0: none are.
size_t split_axes(const Shape& over, int64_t batch) {
  int64_t product = 1;
  for (size_t i = 0; i + 3 < over.size(); ++i) {
    product *= over[i];
    if (product == batch) return i + 1;
  }
  return 0;
}

class AttentionPattern {
 public:
  explicit AttentionPattern(const Graph& graph) : g_(graph), m_(graph) {}

  // node = softmax(...) @ v
  std::optional<Found> match(const Node& node) const {
    if (!is_score_product(g_, node)) return std::nullopt;
    const Node* softmax = find_softmax(node.inputs[0]);
    if (softmax == nullptr) return std::nullopt;
    auto scores = read_scores(g_, m_, softmax->inputs[0]);
    if (!scores || !takes_types(*scores->product, node)) return std::nullopt;
    if (!scores->factors.empty() && scores->product->attrs.has("type.0"))
      return std::nullopt;  // codes stay as they are
    std::optional<Found> best;
    int fewest = 4;
    for (const auto& [batch, heads] : splits(node, *scores)) {
      Found f{.q = {}, .k = {}, .v = {}, .scores = *scores, .batch = batch, .heads = heads};
      f.q_typed = scores->product->attrs.has("type.0"), f.k_typed = scores->product->attrs.has("type.1");
      f.v_typed = node.attrs.has("type.1");
      if (!take_operands(node, &f)) continue;
      const int copies = is_copied(f.q) + is_copied(f.k) + is_copied(f.v);
      if (copies < fewest) best = f, fewest = copies;
    }
    return best;
  }

  // An attention that was one already: its operands and scale, read as those of a match are.
  std::optional<Found> reread(const Node& attention) const {
    Found f{.q = {}, .k = {}, .v = {}, .scores = {}};
    f.q_typed = attention.attrs.has("type.0"), f.k_typed = attention.attrs.has("type.1");
    f.v_typed = attention.attrs.has("type.2");
    f.scores.scale = attention.attrs.number("scale", 1.0);
    Place operands[3];
    for (size_t i = 0; i < 3; ++i) {
      operands[i] = m_.place(attention.inputs[i]);
      operands[i].region = heads_first(operands[i].region);
    }
    if (!read_straight(operands[0], operands[1], operands[2], &f)) return std::nullopt;
    return f;
  }

 private:
  // Back from the probabilities over reshapes, casts and a guard against NaN: attention and softmax give 0 for a query
  // without keys, which is what the guard is for.
  const Node* find_softmax(ValueId v) const {
    v = behind_reshapes(g_, m_, v);
    if (const Node* where = m_.mapped(v, "where"); where != nullptr && m_.number(where->inputs[1]) == 0.0) {
      const ValueId guarded = behind_reshapes(g_, m_, where->inputs[2]);
      if (const auto nan = tested_for_nan(where->inputs[0]); nan && behind_reshapes(g_, m_, *nan) == guarded)
        v = guarded;
    }
    return m_.made_by(v, "softmax");
  }
  // What v says is a NaN: v = !(x == x).
  std::optional<ValueId> tested_for_nan(ValueId v) const {
    const Node* inverted = m_.mapped(v, "logical_not");
    const Node* equal = inverted != nullptr ? m_.mapped(inverted->inputs[0], "equal") : nullptr;
    if (equal == nullptr || equal->inputs[0] != equal->inputs[1]) return std::nullopt;
    return equal->inputs[0];
  }

  // How the leading axes of the products may be batch and heads: as the scores or the result are seen elsewhere; else,
  // where they are one axis, as one head, or in any way that lets q, k and v be read as they were before they were
  // copied into this order.
  std::vector<std::pair<int64_t, int64_t>> splits(const Node& node, const ScoreChain& scores) const {
    const Shape& product = g_.at(scores.product->outputs[0]).type.shape;
    const Shape& result = g_.at(node.outputs[0]).type.shape;
    const int64_t size = product.end()[-1] * product.end()[-2], lead = elements(product) / std::max<int64_t>(1, size);
    if (size == 0 || lead == 0 || elements(result) != lead * product.end()[-2] * result.back()) return {};
    std::vector<Shape> seen = {product, result};
    for (const AddedScores& a : scores.added) seen.push_back(a.over);
    for (const QueryFactor& f : scores.factors) seen.push_back(f.over);
    std::vector<std::pair<int64_t, int64_t>> out;
    for (const Shape& s : seen) {
      int64_t batch = 1;
      for (size_t i = 0; i + 3 < s.size(); ++i) {
        batch *= s[i];
        const std::pair<int64_t, int64_t> split = {batch, lead / batch};
        if (std::find(out.begin(), out.end(), split) == out.end()) out.push_back(split);
      }
    }
    if (out.empty()) {
      out.emplace_back(lead, 1);
      for (int64_t heads = lead; heads > 1; --heads) {
        if (lead % heads == 0) out.emplace_back(lead / heads, heads);
      }
    }
    // What is added must be seen in such a way.
    std::erase_if(out, [&](const auto& split) {
      const auto told_apart = [&](const Shape& over) {
        return over.end()[-2] == product.end()[-2] && over.end()[-1] == product.end()[-1] &&
               (over.size() == 3 || split_axes(over, split.first) != 0);
      };
      return !std::all_of(scores.added.begin(), scores.added.end(), [&](auto& a) { return told_apart(a.over); }) ||
             !std::all_of(scores.factors.begin(), scores.factors.end(), [&](auto& f) { return told_apart(f.over); });
    });
    return out;
  }

  std::optional<Place> by_head(Place p, const Found& f) const {
    const Shape& s = p.region.shape;
    const auto region = reshaped(p.region, {f.batch, f.heads, s.end()[-2], s.end()[-1]});
    if (!region) return std::nullopt;
    return Place{p.base, *region};
  }

  bool is_plain_copy(const Node* copy, ValueId v) const {
    return copy != nullptr && g_.at(copy->inputs[0]).type.quant == g_.at(v).type.quant;
  }
  bool is_copied(const Place& p) const { return is_plain_copy(m_.made_by(p.base, "copy"), p.base); }

  // The same numbers straight from where they were made, scalings on the way moved into `scale`, unless `typed`.
  Place straight(Place p, bool typed, double* scale) const {
    for (;;) {
      const Node* copy = m_.made_by(p.base, "copy");
      const auto scaling = typed ? std::nullopt : read_scaling(m_, p.base);
      if (!is_plain_copy(copy, p.base) && !scaling) return p;
      const Place source = m_.place(scaling ? scaling->x : copy->inputs[0]);
      const auto region = composed(source.region, p.region);
      if (!region) return p;
      if (scaling) *scale *= scaling->number;
      p = {source.base, *region};
    }
  }

  // [b, heads, t, d] as [b, heads / group, t, d], where `group` heads each are one and the same.
  std::optional<Place> shared_by(const Place& p, int64_t group, bool typed, double* scale) const {
    const Shape& s = p.region.shape;
    const auto region = reshaped(p.region, {s[0], s[1] / group, group, s[2], s[3]});
    if (!region) return std::nullopt;
    Place out = straight({p.base, *region}, typed, scale);
    if (group > 1 && out.region.strides[2] != 0) return std::nullopt;
    for (Shape* axes : {&out.region.shape, &out.region.strides}) axes->erase(axes->begin() + 2);
    out.region = permuted(out.region, {0, 1, 2, 3});
    return out;
  }

  bool take_operands(const Node& node, Found* f) const {
    Place value = m_.place(node.inputs[1]);
    std::swap(value.region.shape.end()[-1], value.region.shape.end()[-2]);
    std::swap(value.region.strides.end()[-1], value.region.strides.end()[-2]);
    const auto q = by_head(m_.place(f->scores.product->inputs[0]), *f);
    const auto k = by_head(m_.place(f->scores.product->inputs[1]), *f), v = by_head(value, *f);
    return q && k && v && read_straight(*q, *k, *v, f);
  }

  // q, k and v from where they were made; k and v with as few heads as they really have.
  bool read_straight(const Place& q, const Place& k, const Place& v, Found* f) const {
    for (int64_t group = k.region.shape[1]; group >= 1; --group) {
      if (k.region.shape[1] % group != 0) continue;
      double scale = 1, of_values = 1;
      const auto keys = shared_by(k, group, f->k_typed, &scale);
      const auto values = shared_by(v, group, f->v_typed, &of_values);
      if (!keys || !values || of_values != 1) continue;
      f->k = *keys, f->v = *values;
      f->q = straight(q, f->q_typed, &scale);
      f->scores.scale *= scale;
      return true;
    }
    return false;
  }

  const Graph& g_;
  const Matcher m_;
};

// What broadcasts to scores over such a shape, for scores over [b, heads, queries, keys].
Result<ValueId> split_by_heads(GraphBuilder& b, ValueId v, const Shape& over, const Found& f) {
  Shape shape = b.shape(v);
  if (shape.size() < 3 || (over.size() == 4 && shape.size() == 4)) return v;
  if (over.size() == 3) {
    const Shape lead = shape[0] == 1 ? Shape{1, 1} : Shape{f.batch, f.heads};
    return b.reshape(v, {lead[0], lead[1], shape[1], shape[2]});
  }
  // Several axes are the batch, or the heads: those that v has are spelt out, others stay 1.
  const size_t axes = over.size() - 2, cut = split_axes(over, f.batch);
  shape.insert(shape.begin(), over.size() - shape.size(), 1);
  TS_ASSIGN(v, b.reshape(v, shape));
  Shape wide = shape, joined = {1, 1, shape.end()[-2], shape.end()[-1]};
  for (const auto& [first, last, to] : {std::tuple(size_t{0}, cut, size_t{0}), {cut, axes, size_t{1}}}) {
    bool any = false;
    for (size_t i = first; i < last; ++i) any = any || shape[i] != 1;
    for (size_t i = first; any && i < last; ++i) wide[i] = over[i], joined[to] *= over[i];
  }
  TS_ASSIGN(v, b.expand(v, wide));
  return b.reshape(v, joined, "bias");
}

// q [b, heads, queries, size] times the factors of its queries.
Status multiply_queries(GraphBuilder& b, Found* found) {
  for (const QueryFactor& f : found->scores.factors) {
    TS_ASSIGN(const ValueId q, b.view(found->q.base, tokens_first(found->q.region)));
    TS_ASSIGN(ValueId by_head, split_by_heads(b, f.value, f.over, *found));
    Shape four = b.shape(by_head);
    four.insert(four.begin(), 4 - four.size(), 1);
    TS_ASSIGN(by_head, b.reshape(by_head, four));
    TS_ASSIGN(by_head, b.permute(by_head, {0, 2, 1, 3}));
    TS_ASSIGN(const ValueId scaled, b.map(f.divides ? "div" : "mul", {q, by_head}, "queries"));
    found->q = {scaled, heads_first(dense_region(b.shape(scaled)))};
  }
  return {};
}

// Makes one operand of everything that is added to the scores.
class BiasMaker {
 public:
  // Masks that were made for earlier layers serve again.
  using Known = std::map<std::tuple<ValueId, Shape, Shape, int64_t, bool, double>, ValueId>;

  BiasMaker(GraphBuilder& builder, const Found& found, Known& known) : b_(builder), f_(found), known_(known) {}

  Result<ValueId> make() {
    ValueId sum = kNoValue;
    for (const AddedScores& a : f_.scores.added) {
      TS_ASSIGN(const ValueId by_head, split(a));
      TS_ASSIGN(const ValueId next, a.is_mask ? masked(by_head, a) : scaled(by_head, a.factor));
      if (sum == kNoValue) {
        sum = next;
      } else {
        TS_ASSIGN(sum, b_.map("add", {sum, next}, "bias"));
      }
    }
    return sum;
  }

 private:
  // Over [b, heads, queries, keys], without axes that only repeat.
  Result<ValueId> split(const AddedScores& a) {
    TS_ASSIGN(const ValueId v, split_by_heads(b_, a.value, a.over, f_));
    Place p = b_.place(v);
    if (p.base == v) return v;
    for (size_t i = 0; i < p.region.shape.size(); ++i) {
      if (p.region.strides[i] == 0) p.region.shape[i] = 1;
    }
    std::vector<int64_t> axes(p.region.shape.size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
    return b_.view(p.base, permuted(p.region, axes));
  }

  Result<ValueId> scaled(ValueId v, double factor) {
    if (factor == 1) return v;
    return b_.map("mul", {v, b_.scalar(factor, b_.element(v))}, "bias");
  }

  Result<ValueId> masked(ValueId mask, const AddedScores& a) {
    const Place p = b_.place(mask);
    const auto key = std::tuple(p.base, p.region.shape, p.region.strides, p.region.offset, a.inverted, a.hidden);
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
    const Element element = b_.element(f_.scores.product->outputs[0]);
    const ValueId seen = b_.scalar(0, element, "seen"), hidden = b_.scalar(a.hidden, element, "hidden");
    TS_ASSIGN(const ValueId bias,
              b_.map("where", {mask, a.inverted ? hidden : seen, a.inverted ? seen : hidden}, "mask"));
    known_[key] = bias;
    return bias;
  }

  GraphBuilder& b_;
  const Found& f_;
  Known& known_;
};

// Types that the two products were given are the attention's. Contract: takes_types.
void take_types(const Node& scores, const Node& sum, Attrs* attrs) {
  const auto take = [&](const Node& from, const std::string& operand, const std::string& as) {
    if (!from.attrs.has("type." + operand)) return;
    attrs->set("type." + as, from.attrs.word("type." + operand));
    if (from.attrs.has("scale." + operand)) attrs->set("scale." + as, from.attrs.number("scale." + operand));
  };
  take(scores, "0", "0");
  take(scores, "1", "1");
  take(sum, "1", "2");
  if (sum.attrs.has("type.0")) attrs->set("p", sum.attrs.word("type.0"));
}

enum class MaskKind : uint8_t { kNothing, kCausal, kOther };

// What a constant bias does: nothing, or exactly hide the keys after i + keys - queries.
MaskKind kind_of(const Graph& graph, ValueId bias, int64_t queries, int64_t keys) {
  const Value& value = graph.at(bias);
  if (!value.constant || value.type.quant.scaled()) return MaskKind::kOther;
  const Shape& s = value.type.shape;
  const int64_t cols = s.empty() ? 1 : s.back(), rows = s.size() < 2 ? 1 : s.end()[-2];
  const std::vector<double> numbers = graph.numbers(bias);
  bool nothing = true, causal = cols == keys && rows == queries && keys >= queries;
  for (size_t i = 0; i < numbers.size() && (nothing || causal); ++i) {
    const int64_t at = static_cast<int64_t>(i), key = at % cols, query = at / cols % rows;
    const bool seen = key <= query + keys - queries;
    nothing = nothing && numbers[i] == 0;
    causal = causal && (seen ? numbers[i] == 0 : numbers[i] <= kUnseen);
  }
  return nothing ? MaskKind::kNothing : causal ? MaskKind::kCausal : MaskKind::kOther;
}

// Where not all of q, k and v have types, those that have are rounded by copies: attention is in codes or it is not.
Status round_some(GraphBuilder& builder, std::vector<ValueId>& operands, Attrs* attrs) {
  if (attrs->has("type.0") && attrs->has("type.1") && attrs->has("type.2")) return {};
  for (size_t i = 0; i < 3; ++i) {
    const std::string type_key = cat("type.", i), scale_key = cat("scale.", i);
    const auto type = parse_quant_type(attrs->word(type_key));
    if (!type) continue;
    const std::string name = builder.graph().at(operands[i]).name;
    const ValueId scale =
        builder.graph().add_constant(name + ".scale", {1}, {static_cast<float>(attrs->number(scale_key))});
    const ValueId codes = builder.quantize(operands[i], *type, scale, kNoValue, name + ".codes");
    TS_ASSIGN(operands[i], builder.emit("copy", {codes}, {}, name + ".rounded"));
    attrs->erase(type_key);
    attrs->erase(scale_key);
  }
  return {};
}

// Views of q, k and v, then the bias unless it says no more than `causal` does.
Result<std::vector<ValueId>> operands_of(GraphBuilder& builder, const Found& found, ValueId bias, Attrs* attrs) {
  std::vector<ValueId> out;
  for (const Place* p : {&found.q, &found.k, &found.v}) {
    TS_ASSIGN(const ValueId v, builder.view(p->base, tokens_first(p->region)));
    out.push_back(v);
  }
  if (bias == kNoValue) return out;
  const MaskKind kind = kind_of(builder.graph(), bias, builder.shape(out[0])[1], builder.shape(out[1])[1]);
  if (kind == MaskKind::kCausal) attrs->set("causal", int64_t{1});
  if (kind == MaskKind::kOther) out.push_back(bias);
  return out;
}

// What exporters wrote as one node: shared keys were still repeated for it, masks may be spelt out.
Status simplify(Graph& graph, size_t at) {
  const auto found = AttentionPattern(graph).reread(graph.nodes[at]);
  if (!found) return {};
  Node node = graph.nodes[at];
  const ValueId bias = node.inputs.size() > 3 ? node.inputs[3] : kNoValue;
  GraphBuilder builder(graph, at);
  node.attrs.set("scale", found->scores.scale);
  // With lengths the keys are in another order than the bias's columns: it stays as it is.
  const ValueId lengths = node.inputs.size() > 4 ? node.inputs[4] : kNoValue;
  TS_ASSIGN(node.inputs, operands_of(builder, *found, lengths == kNoValue ? bias : kNoValue, &node.attrs));
  if (lengths != kNoValue) node.inputs.insert(node.inputs.end(), {bias, lengths});
  graph.nodes[builder.position()] = std::move(node);
  return {};
}

}  // namespace

Status recognise_attention(Graph& graph) {
  BiasMaker::Known known;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == "attention") {
      const size_t before = graph.nodes.size();
      TS_TRY(simplify(graph, i));
      i += graph.nodes.size() - before;
    }
    if (graph.nodes[i].op != "matmul") continue;
    auto found = AttentionPattern(graph).match(graph.nodes[i]);
    if (!found) continue;
    const Node product = *found->scores.product, sum = graph.nodes[i];  // the graph's own moves when nodes are added
    found->scores.product = &product;
    const ValueId old = graph.nodes[i].outputs[0];
    const std::string name = parent_layer(graph.nodes[i].name, "attention");
    GraphBuilder builder(graph, i);
    TS_TRY(multiply_queries(builder, &*found));
    ValueId bias = kNoValue;
    if (!found->scores.added.empty()) {
      TS_ASSIGN(bias, BiasMaker(builder, *found, known).make());
    }
    Attrs attrs = {{"scale", found->scores.scale}};
    take_types(product, sum, &attrs);
    TS_ASSIGN(std::vector<ValueId> operands, operands_of(builder, *found, bias, &attrs));
    TS_TRY(round_some(builder, operands, &attrs));
    TS_ASSIGN(ValueId y, builder.emit("attention", operands, attrs, name));
    TS_ASSIGN(y, builder.permute(y, {0, 2, 1, 3}));
    TS_ASSIGN(y, builder.reshape(y, builder.shape(old), name + ".reshape"));
    TS_ASSIGN(y, builder.cast(y, builder.element(old), name + ".cast"));
    TS_TRY(take_over(builder, old, y));
    i = builder.position();
  }
  return {};
}

}  // namespace tessera
