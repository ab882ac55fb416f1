// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "op/f64_product.h"
#include "ops/attention/attention.h"

#define TS_OP_FOLDER attention
#include "ops/list_variants.inc"

namespace tessera {

AttentionProblem AttentionProblem::of(const Problem& p) {
  const Operand &q = p.in[0], &k = p.in[1], &v = p.in[2];
  AttentionProblem a;
  a.batch = q.shape[0], a.queries = q.shape[1], a.heads = q.shape[2], a.head_size = q.shape[3];
  a.keys = k.shape[1], a.kv_heads = k.shape[2], a.value_size = v.shape[3];
  a.scale = p.attrs.number("scale", 1.0);
  a.causal = p.attrs.integer("causal") != 0;
  a.q_strides = q.strides, a.k_strides = k.strides, a.v_strides = v.strides;
  a.q = q.type, a.k = k.type, a.v = v.type, a.y = p.out[0].type;
  if (p.attrs.has("p")) a.p = parse_quant_type(p.attrs.word("p"));
  if (const Operand* bias = p.operand(3)) {
    a.has_bias = true;
    a.bias_strides.assign(4, 0);
    const size_t lead = 4 - bias->shape.size();
    for (size_t i = 0; i < bias->shape.size(); ++i)
      a.bias_strides[lead + i] = bias->shape[i] == 1 ? 0 : bias->strides[i];
  }
  if (const Operand* lengths = p.operand(4)) {
    a.has_lengths = true;
    a.length_stride = elements(lengths->shape) > 1 ? 1 : 0;
    a.fresh = p.attrs.integer("fresh");
  }
  a.then = &p.then;
  return a;
}

bool is_attention_operand(const QuantType& type) {
  if (type.scaled()) return type == kE4m3PerTensor;
  return info(type.element).kind == ElementKind::kFloat;
}

bool is_attention_weight(const QuantType& type) {
  const ElementInfo& element = info(type.element);
  // Weights lie in [0, 1]: their scale is the one that takes 1 to the largest number, and it is not chosen.
  return element.kind == ElementKind::kFloat && element.bits <= 8 && !is_power(type.element) &&
         type == QuantType(type.element, {Granularity::kTensor, Element::f32});
}

bool is_scale_of_weights(double scale, Element element) {
  const double exact = 1 / info(element).max;
  for (const Element e : {Element::f32, Element::f16, Element::bf16}) {
    uint32_t code = 0;
    double stored = 0;
    info(e).encode_f64(&exact, 1, &code, 0);
    info(e).decode_f64(&code, 0, 1, &stored);
    if (scale == stored) return true;
  }
  return false;
}

void round_weights(const ElementInfo& element, std::span<double> v, std::vector<uint8_t>& codes) {
  const auto n = static_cast<int64_t>(v.size());
  for (double& x : v) x *= element.max;
  codes.resize(v.size());
  element.encode_f64(v.data(), n, codes.data(), 0);
  element.decode_f64(codes.data(), 0, n, v.data());
}

namespace {

Status check_lengths(const Problem& p, const std::string& shapes) {
  const int64_t batch = p.in[0].shape[0], keys = p.in[1].shape[1], fresh = p.attrs.integer("fresh");
  const Operand* lengths = p.operand(4);
  if (lengths == nullptr) {
    if (fresh != 0) return bad_input(cat(shapes, "fresh = ", fresh, " without lengths; it says how many keys are new"));
    return {};
  }
  if (lengths->type != QuantType(Element::i32))
    return bad_input(cat(shapes, "lengths are ", to_string(lengths->type), ", wanted i32"));
  if (lengths->shape.size() != 1 || (lengths->shape[0] != 1 && lengths->shape[0] != batch))
    return bad_input(cat(shapes, "lengths", to_string(lengths->shape), ", wanted [1] or [batch]"));
  if (fresh < 0 || fresh > keys)
    return bad_input(cat(shapes, "fresh = ", fresh, ", wanted a number of new keys from 0 to ", keys));
  return {};
}

Result<std::vector<Type>> infer(const Problem& p) {
  for (size_t i = 0; i < 3; ++i) {
    const Operand* o = p.operand(i);
    if (o == nullptr || o->shape.size() != 4)
      return bad_input("attention: wants q, k and v of four axes, [batch, tokens, heads, size] each");
    if (!is_attention_operand(o->type))
      return bad_input(
          cat("attention: reads q, k and v as floats or as e4m3:tensor(f32), not as ", to_string(o->type)));
  }
  const Shape &q = p.in[0].shape, &k = p.in[1].shape, &v = p.in[2].shape;
  const std::string shapes = cat("attention: q", to_string(q), " k", to_string(k), " v", to_string(v), ": ");
  if (q[0] != k[0] || q[0] != v[0]) return bad_input(shapes + "batches differ");
  if (k[1] != v[1] || k[2] != v[2]) return bad_input(shapes + "k and v must have the same tokens and heads");
  if (q[3] != k[3]) return bad_input(shapes + "q and k must have the same head size");
  if (k[2] < 1 || q[2] % k[2] != 0) return bad_input(shapes + "the heads of q must be a multiple of those of k");
  if (k[1] < 1) return bad_input(shapes + "there must be a key at least");
  if (p.attrs.integer("causal") != 0 && k[1] < q[1])
    return bad_input(shapes + "causal: the first queries would have no key");
  if (p.attrs.has("p")) {
    const auto type = parse_quant_type(p.attrs.word("p"));
    if (!type || !is_attention_weight(*type))
      return bad_input(cat(shapes, "p = \"", p.attrs.word("p"),
                           "\" is no type for the softmax; a float of up to 8 bits with one static scale is, as in "
                           "e4m3:tensor(f32)"));
  }
  if (const Operand* bias = p.operand(3)) {
    const int64_t full[] = {q[0], q[2], q[1], k[1]};
    bool fits = bias->shape.size() <= 4;
    for (size_t i = 0; fits && i < bias->shape.size(); ++i) {
      const int64_t d = bias->shape[bias->shape.size() - 1 - i];
      fits = d == 1 || d == full[3 - i];
    }
    if (!fits)
      return bad_input(
          cat(shapes, "bias", to_string(bias->shape), " does not broadcast to [batch, heads, queries, keys]"));
  }
  TS_TRY(check_lengths(p, shapes));
  return std::vector<Type>{{.shape = {q[0], q[1], q[2], v[3]}, .quant = result_element(p.in[0])}};
}

// One head: the rows of a [tokens, size] matrix inside a dense [batch, tokens, heads, size].
void take_head(const Dense& from, int64_t b, int64_t h, std::vector<double>& to) {
  const int64_t tokens = from.shape[1], heads = from.shape[2], size = from.shape[3];
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(from.v.data() + ((b * tokens + t) * heads + h) * size, size, to.data() + t * size);
  }
}

// `rounded`: the element of attr `p`, or null.
void softmax_row(double* s, int64_t n, const ElementInfo* rounded, std::vector<uint8_t>& codes) {
  if (n == 0) return;
  const double top = *std::max_element(s, s + n);
  if (top == -INFINITY) {  // every key is hidden
    std::fill_n(s, n, 0.0);
    return;
  }
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += s[j] = std::exp(s[j] - top);
  if (rounded != nullptr) {
    round_weights(*rounded, {s, static_cast<size_t>(n)}, codes);
    sum *= rounded->max;
  }
  for (int64_t j = 0; j < n; ++j) s[j] /= sum;
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const AttentionProblem a = AttentionProblem::of(p);
  // in[3] is dense now: its strides are those of its shape, 0 where broadcast.
  Shape bias_strides(4, 0);
  if (a.has_bias) {
    const Shape dense = dense_strides(in[3].shape);
    for (size_t i = 0; i < dense.size(); ++i) bias_strides[4 - dense.size() + i] = in[3].shape[i] == 1 ? 0 : dense[i];
  }
  const ElementInfo* rounded = a.p ? &info(a.p->element) : nullptr;
  const double* lengths = a.has_lengths ? in[4].v.data() : nullptr;
  parallel_for(a.batch * a.heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes;
    const auto matrix = [](int64_t rows, int64_t cols) {
      return std::vector<double>(static_cast<size_t>(rows * cols));
    };
    std::vector<double> q = matrix(a.queries, a.head_size), k = matrix(a.keys, a.head_size),
                        v = matrix(a.keys, a.value_size);
    std::vector<double> v_rows = v, scores = matrix(a.queries, a.keys), y = matrix(a.queries, a.value_size);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t b = item / a.heads, h = item % a.heads, g = h / (a.heads / a.kv_heads);
      const ValidKeys<int64_t> valid = a.valid_keys_of(lengths, b);
      take_head(in[0], b, h, q);
      take_head(in[1], b, g, k);
      take_head(in[2], b, g, v_rows);
      for (int64_t j = 0; j < a.keys; ++j) {
        for (int64_t d = 0; d < a.value_size; ++d)
          v[static_cast<size_t>(d * a.keys + j)] =
              j < valid.all ? v_rows[static_cast<size_t>(j * a.value_size + d)] : 0;
      }
      f64_product(q.data(), k.data(), scores.data(), a.queries, a.keys, a.head_size);
      for (int64_t i = 0; i < a.queries; ++i) {
        double* row = scores.data() + i * a.keys;
        for (int64_t j = 0; j < valid.all; ++j) {
          row[j] *= a.scale;
          if (a.has_bias)
            row[j] = add_bias(
                row[j], in[3].v[static_cast<size_t>(b * bias_strides[0] + h * bias_strides[1] + i * bias_strides[2] +
                                                    valid.bias_column(j) * bias_strides[3])]);
        }
        const int64_t seen = valid.seen_by(i, a.queries, a.causal);
        softmax_row(row, seen, rounded, codes);
        std::fill(row + seen, row + a.keys, 0.0);
      }
      f64_product(scores.data(), v.data(), y.data(), a.queries, a.value_size, a.keys);
      for (int64_t i = 0; i < a.queries; ++i) {
        std::copy_n(y.data() + i * a.value_size, a.value_size,
                    out[0].v.data() + ((b * a.queries + i) * a.heads + h) * a.value_size);
      }
    }
  });
}

// A score sums over the head, a result over the keys.
int64_t terms(const Problem& p) { return std::max<int64_t>(1, p.in[0].shape.back() + p.in[1].shape[1]); }

double flops(const Problem& p) {
  const AttentionProblem a = AttentionProblem::of(p);
  const double i = static_cast<double>(a.queries), j = static_cast<double>(a.keys);
  const double pairs = a.causal ? i * (j - i) + i * (i + 1) / 2 : i * j;
  return 2.0 * static_cast<double>(a.batch * a.heads * (a.head_size + a.value_size)) * pairs;
}

}  // namespace

const OpInfo& attention_op() {
  static const OpInfo kInfo{
      .name = "attention",
      .signature =
          "q[b,sq,heads,d], k[b,sk,kv_heads,d], v[b,sk,kv_heads,e], bias[b,heads,sq,sk]?, lengths[b]? -> "
          "y[b,sq,heads,e]",
      .strided = StridedInputs::kLastAxis,
      .takes_program = true,
      .promises = 1,
      .infer = infer,
      .reference = reference,
      .errors = attention_errors,
      .terms = terms,
      .flops = flops,
      .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
