// SPDX-License-Identifier: Apache-2.0
// Attention and RotaryEmbedding of opset 23 and later, straight to the ops `attention` and `rotary`. What `attention`
// has no word for (a soft cap, the scores as a result) is written out:
//   y = softmax(cap(scale q k^T) + bias) v,   cap(s) = c tanh(s / c)
#include <cmath>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

// [batch, tokens, heads, size] of an operand [batch, heads, tokens, size] or [batch, tokens, heads * size].
Result<ValueId> by_heads(OnnxCall& c, ValueId x, int64_t heads, const std::string& attr) {
  const Shape s = c.b.shape(x);
  if (s.size() == 4) return c.b.permute(x, {0, 2, 1, 3});
  if (s.size() != 3) return bad_input(cat("wants three or four axes, not ", to_string(s)));
  if (heads < 1 || s[2] % heads != 0)
    return bad_input(cat(attr, " = ", heads, " does not split ", to_string(s), " into heads"));
  return c.b.reshape(x, {s[0], s[1], heads, s[2] / heads});
}

// Back to the operand's own form.
Result<ValueId> as_before(OnnxCall& c, ValueId y, size_t rank) {
  if (rank == 4) return c.b.permute(y, {0, 2, 1, 3});
  const Shape s = c.b.shape(y);
  return c.b.reshape(y, {s[0], s[1], s[2] * s[3]}, c.name());
}

struct Masks {
  ValueId bias = kNoValue;  // broadcasts to [batch, heads, queries, keys]; -inf where a key takes no part
  bool causal = false;      // what the op's own attribute says
};

class AttentionCall {
 public:
  explicit AttentionCall(OnnxCall& c) : c_(c) {}

  Result<Values> convert() {
    TS_TRY(read_operands());
    TS_TRY(read_masks());
    TS_ASSIGN(const int64_t mode, c_.integer("qk_matmul_output_mode", 0));
    TS_ASSIGN(const double cap, c_.number("softcap", 0));
    const bool scores_wanted = c_.node.outputs.size() > 3 && !c_.node.outputs[3].empty();
    ValueId scores = kNoValue, y = kNoValue;
    if (cap == 0 && !scores_wanted) {
      Values operands = {q_, k_, v_};
      if (masks_.bias != kNoValue) operands.push_back(masks_.bias);
      Attrs attrs = {{"scale", scale_}};
      if (masks_.causal) attrs.set("causal", int64_t{1});
      TS_ASSIGN(y, c_.b.emit("attention", operands, attrs, c_.layer.empty() ? c_.name() : c_.layer));
    } else {
      if (masks_.causal) TS_TRY(forbid("less_equal", c_.b.scalar(static_cast<double>(past_), Element::i64)));
      TS_TRY(write_out(cap, mode, scores, y));
    }
    TS_ASSIGN(y, as_before(c_, y, rank_));
    Values results = {y};
    for (ValueId cache : {k_, v_}) {
      TS_ASSIGN(const ValueId present, c_.b.permute(cache, {0, 2, 1, 3}));
      results.push_back(present);
    }
    if (scores != kNoValue) results.push_back(scores);
    return results;
  }

 private:
  Status read_operands() {
    TS_ASSIGN(const int64_t heads, c_.integer("q_num_heads", 0));
    TS_ASSIGN(const int64_t kv_heads, c_.integer("kv_num_heads", 0));
    for (size_t i = 0; i < 3; ++i) {
      TS_ASSIGN(const ValueId x, c_.operand(i));
      if (i == 0) rank_ = c_.b.rank(x);
      ValueId& own = i == 0 ? q_ : i == 1 ? k_ : v_;
      TS_ASSIGN(own, by_heads(c_, x, i == 0 ? heads : kv_heads, i == 0 ? "q_num_heads" : "kv_num_heads"));
    }
    if (c_.has(4) != c_.has(5)) return bad_input("past_key and past_value go together");
    for (size_t i = 4; i < 6 && c_.has(4); ++i) {
      if (c_.b.rank(c_.in[i]) != 4) return bad_input(cat("a past of ", to_string(c_.b.shape(c_.in[i]))));
      TS_ASSIGN(const ValueId past, c_.b.permute(c_.in[i], {0, 2, 1, 3}));
      past_ = c_.b.shape(past)[1];
      ValueId& own = i == 4 ? k_ : v_;
      TS_ASSIGN(own, c_.b.concat({past, own}, 1, c_.name()));
    }
    queries_ = c_.b.shape(q_)[1], keys_ = c_.b.shape(k_)[1];
    TS_ASSIGN(scale_, c_.number("scale", 1 / std::sqrt(static_cast<double>(c_.b.shape(q_)[3]))));
    return {};
  }

  // Adds -inf where `ahead compare limit` does not hold; ahead is key - query, counted from the front of both.
  Status forbid(const char* compare, ValueId limit) {
    TS_ASSIGN(const ValueId query, count_along(c_, queries_, 2, 4));
    TS_ASSIGN(const ValueId key, count_along(c_, keys_, 3, 4));
    TS_ASSIGN(const ValueId ahead, c_.b.map("sub", {key, query}, c_.name()));
    TS_ASSIGN(const ValueId allowed, c_.b.map(compare, {ahead, limit}, c_.name()));
    return add_allowed(allowed);
  }

  Status add_allowed(ValueId allowed) {
    TS_ASSIGN(const ValueId bias, c_.b.map("where", {allowed, number(0), number(-INFINITY)}, c_.name() + ".mask"));
    if (masks_.bias == kNoValue) {
      masks_.bias = bias;
      return {};
    }
    TS_ASSIGN(masks_.bias, c_.b.map("add", {masks_.bias, bias}, c_.name() + ".mask"));
    return {};
  }

  Status read_masks() {
    if (c_.has(3)) {
      ValueId mask = c_.in[3];
      const Shape& shape = c_.b.shape(mask);
      const bool truth = c_.is_integer(mask);
      if (!shape.empty() && shape.back() < keys_ && shape.back() > 1) {  // keys beyond the mask take no part
        Shape rest = shape;
        rest.back() = keys_ - shape.back();
        TS_ASSIGN(const ValueId none,
                  c_.b.expand(truth ? c_.b.scalar(0, c_.b.element(mask)) : number(-INFINITY), rest));
        TS_ASSIGN(mask, c_.b.concat({mask, none}, -1, c_.name() + ".mask"));
      }
      if (truth) {
        TS_TRY(add_allowed(mask));
      } else {
        masks_.bias = mask;
      }
    }
    TS_ASSIGN(const int64_t causal, c_.integer("is_causal", 0));
    TS_ASSIGN(const int64_t left, c_.integer("left_window_size", -1));
    TS_ASSIGN(const int64_t right, c_.integer("right_window_size", -1));
    // How far the first query stands behind the first key; by sample where the cache is kept outside.
    ValueId offset = c_.b.scalar(static_cast<double>(past_), Element::i64);
    if (c_.has(6)) {
      TS_ASSIGN(const ValueId filled, c_.b.cast(c_.in[6], Element::i64, c_.name()));
      TS_ASSIGN(const ValueId by_sample, c_.b.reshape(filled, {elements(c_.b.shape(filled)), 1, 1, 1}));
      TS_ASSIGN(const ValueId key, count_along(c_, keys_, 3, 4));
      TS_ASSIGN(const ValueId there, c_.b.map("less", {key, by_sample}, c_.name()));
      TS_TRY(add_allowed(there));
      TS_ASSIGN(offset,
                c_.b.map("sub", {by_sample, c_.b.scalar(static_cast<double>(queries_), Element::i64)}, c_.name()));
    }
    if (causal != 0) {
      // The op's own causal mask ends both sequences together.
      masks_.causal = !c_.has(6) && past_ == keys_ - queries_;
      if (!masks_.causal) TS_TRY(forbid("less_equal", offset));
    }
    const auto shifted = [&](int64_t by) {
      return c_.b.map("add", {offset, c_.b.scalar(static_cast<double>(by), Element::i64)}, c_.name());
    };
    if (left >= 0) {
      TS_ASSIGN(const ValueId first, shifted(-left));
      TS_TRY(forbid("greater_equal", first));
    }
    if (right >= 0) {
      TS_ASSIGN(const ValueId last, shifted(right));
      TS_TRY(forbid("less_equal", last));
    }
    return {};
  }

  // k or v for every head of q: [batch, heads, tokens, size].
  Result<ValueId> for_all_heads(ValueId x) {
    Shape s = c_.b.shape(x);
    const int64_t heads = c_.b.shape(q_)[2];
    if (s[2] < 1 || heads % s[2] != 0) return bad_input(cat(heads, " heads of q over ", s[2], " of k and v"));
    TS_ASSIGN(x, c_.b.unsqueeze(x, {3}));
    TS_ASSIGN(x, c_.b.expand(x, {s[0], s[1], s[2], heads / s[2], s[3]}));
    TS_ASSIGN(x, c_.b.reshape(x, {s[0], s[1], heads, s[3]}, c_.name()));
    return c_.b.permute(x, {0, 2, 1, 3});
  }

  // A query that sees no key gets zeros, not 0 / 0.
  Result<ValueId> without_blind_rows(ValueId weights) {
    if (masks_.bias == kNoValue) return weights;
    std::vector<bool> last(c_.b.rank(masks_.bias), false);
    last.back() = true;
    TS_ASSIGN(const ValueId most, reduce_axes(c_, masks_.bias, last, true, "max"));
    TS_ASSIGN(const ValueId blind, c_.b.map("equal", {most, number(-INFINITY)}, c_.name()));
    return c_.b.map("where", {blind, number(0), weights}, c_.name());
  }

  Status write_out(double cap, int64_t mode, ValueId& scores, ValueId& y) {
    TS_ASSIGN(const ValueId q, c_.b.permute(q_, {0, 2, 1, 3}));
    TS_ASSIGN(const ValueId k, for_all_heads(k_));
    TS_ASSIGN(const ValueId v, for_all_heads(v_));
    TS_ASSIGN(ValueId s, product(c_, q, k, c_.name()));
    TS_ASSIGN(s, c_.b.map("mul", {s, number(scale_)}, c_.name()));
    std::vector<ValueId> stages = {s};
    if (cap != 0) {
      TS_ASSIGN(s, c_.b.map("div", {s, number(cap)}, c_.name()));
      TS_ASSIGN(s, c_.b.map("tanh", {s}, c_.name()));
      TS_ASSIGN(s, c_.b.map("mul", {s, number(cap)}, c_.name()));
    }
    stages.push_back(s);
    if (masks_.bias != kNoValue) {
      TS_ASSIGN(s, c_.b.map("add", {s, masks_.bias}, c_.name()));
    }
    stages.push_back(s);
    TS_ASSIGN(s, c_.b.emit("softmax", {s}, {}, c_.name()));
    TS_ASSIGN(s, without_blind_rows(s));
    stages.push_back(s);
    if (mode < 0 || mode > 3) return bad_input(cat("qk_matmul_output_mode = ", mode, "; 0 to 3 are known"));
    scores = stages[static_cast<size_t>(mode)];
    TS_ASSIGN(const ValueId columns, c_.b.transpose(v));
    TS_ASSIGN(y, product(c_, s, columns, c_.name()));
    TS_ASSIGN(y, c_.b.permute(y, {0, 2, 1, 3}));
    return {};
  }

  ValueId number(double x) { return c_.b.scalar(x, c_.b.element(q_)); }

  OnnxCall& c_;
  size_t rank_ = 0;                                     // of the operands as they came
  ValueId q_ = kNoValue, k_ = kNoValue, v_ = kNoValue;  // [batch, tokens, heads, size]
  int64_t queries_ = 0, keys_ = 0, past_ = 0;
  double scale_ = 1;
  Masks masks_;
};

Result<Values> attention(OnnxCall& c) { return AttentionCall(c).convert(); }

Result<Values> rotary_embedding(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(ValueId cos, c.operand(1));
  TS_ASSIGN(ValueId sin, c.operand(2));
  TS_ASSIGN(const int64_t heads, c.integer("num_heads", 0));
  TS_ASSIGN(const int64_t interleaved, c.integer("interleaved", 0));
  TS_ASSIGN(const int64_t turned, c.integer("rotary_embedding_dim", 0));
  const size_t rank = c.b.rank(x);
  TS_ASSIGN(x, by_heads(c, x, heads, "num_heads"));
  const int64_t size = c.b.shape(x)[3], pairs = (turned == 0 ? size : turned) / 2;
  for (ValueId* table : {&cos, &sin}) {
    if (c.has(3)) {
      TS_ASSIGN(*table, take(c, *table, 0, c.in[3]));
    }
    if (c.b.rank(*table) != 3 || c.b.shape(*table)[2] != pairs)
      return bad_input(cat("angles ", to_string(c.b.shape(*table)), " for heads of ", size, " numbers, of which ",
                           2 * pairs, " turn"));
  }
  TS_ASSIGN(const ValueId y, c.b.emit("rotary", {x, cos, sin}, {{"interleaved", int64_t{interleaved != 0}}},
                                      c.layer.empty() ? c.name() : c.layer + ".rotary"));
  return single(as_before(c, y, rank));
}

}  // namespace

std::span<const OnnxOp> onnx_attention_ops() {
  static const OnnxOp kOps[] = {{"Attention", attention}, {"RotaryEmbedding", rotary_embedding}};
  return kOps;
}

}  // namespace tessera
