// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/emulate.h"

#include <algorithm>
#include <cmath>

#include "archs/sm90/approximate.h"
#include "base/parallel.h"
#include "emulate/tensor_core_lanes.h"
#include "op/reference.h"
#include "tiles/sm90/chain/few_keys.h"

namespace tessera {
namespace {

constexpr float kLog2e = 1.44269504088896341f, kLog2Of448 = 8.80735492205760411f;
// As ex2.approx.ftz gives it: subnormal results are 0.
float exp2_flushed(float x) {
  const auto y = static_cast<float>(std::exp2(static_cast<double>(x)));
  return y < 0x1p-126f ? 0.0f : y;
}

constexpr float kNoWeight = 110;  // exp(-110) is below the smallest subnormal f32

// Of a weight: its exponential, and the rounding of what it is compared with.
constexpr double kWeightError = sm90::kExp2Error + 0x1p-24;

// The rows of one head of a [batch, tokens, heads, size] tensor.
std::vector<float> head_of(const std::vector<float>& all, const Shape& shape, int64_t b, int64_t h) {
  const int64_t tokens = shape[1], heads = shape[2], size = shape[3];
  std::vector<float> rows(static_cast<size_t>(tokens * size));
  for (int64_t t = 0; t < tokens; ++t)
    std::copy_n(all.begin() + ((b * tokens + t) * heads + h) * size, size, rows.begin() + t * size);
  return rows;
}

// v of one head as the second operand of a product over keys: panels of channels.
std::vector<CorePanel> panels_of(const std::vector<float>& rows, int64_t keys, int64_t size, int least) {
  std::vector<CorePanel> panels(static_cast<size_t>((size + kCoreLanes - 1) / kCoreLanes));
  for (size_t p = 0; p < panels.size(); ++p) {
    const int64_t first = static_cast<int64_t>(p) * kCoreLanes, count = std::min<int64_t>(kCoreLanes, size - first);
    std::vector<float> turned(static_cast<size_t>(count * keys));
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t j = 0; j < keys; ++j)
        turned[static_cast<size_t>(c * keys + j)] = rows[static_cast<size_t>(j * size + first + c)];
    }
    panels[p].pack(turned.data(), least, count, keys);
  }
  return panels;
}

// What a kernel has of one row while it goes over the keys.
struct RowState {
  // Of the scores so far, in units of log2 or, with a bias, of the scores; offset: where it is fused.
  float top = -INFINITY, offset = INFINITY;
  double sum = 0;  // of the weights
  std::vector<float> o;
  std::vector<double> off;
  bool started = false;
};

class Rows {
 public:
  Rows(const Problem& problem, std::span<const TensorView> in, const AttentionOrder& order)
      : order_(order), a_(AttentionProblem::of(problem)), weight_(info(a_.p ? a_.p->element : a_.q.element)) {
    TS_CHECK(order.split == 1 || !order.fused_offset, "a fused offset has no greatest score to join by");
    TS_CHECK(!a_.has_bias || !order.fused_offset, "a fused offset is taken of scores without a bias");
    codes_ = a_.p.has_value();
    // The bias is added in units of the scores.
    scale_ = static_cast<float>(a_.has_bias ? a_.scale : a_.scale * 1.44269504088896341);
    // As the kernels multiply: one scale after the other, or both with each other first.
    const float q = tensor_scale(in[0]), k = tensor_scale(in[1]);
    if (a_.q.scaled()) scale_ = order.fused_offset ? scale_ * q * k : scale_ * (q * k);
    if (order.fused_offset) scale_ = std::max(scale_, 0x1p-100f);
    if (a_.has_bias) bias_ = decode(in[3]);
    if (a_.has_lengths) lengths_ = static_cast<const int32_t*>(in[4].data);
    if (a_.has_bias) {
      const Shape& shape = bias_.shape;
      const Shape dense = dense_strides(shape);
      for (size_t i = 0; i < shape.size(); ++i) bias_strides_[4 - shape.size() + i] = shape[i] == 1 ? 0 : dense[i];
    }
  }

  ValidKeys<int64_t> valid_of(int64_t b) const { return a_.valid_keys_of(lengths_, b); }

  // One row: scores in, results before the division out.
  RowState run(std::vector<float>& s, int64_t b, int64_t h, int64_t i, std::vector<CorePanel>& panels,
               const std::vector<float>& v) {
    const ValidKeys<int64_t> valid = valid_of(b);
    const int64_t keys = a_.keys, seen = valid.seen_by(i, a_.queries, a_.causal);
    width_.assign(static_cast<size_t>(keys), 0.0);
    for (int64_t j = 0; j < keys; ++j) {
      float& x = s[static_cast<size_t>(j)];
      if (a_.has_bias && j < valid.all) {
        const auto at = static_cast<size_t>(b * bias_strides_[0] + h * bias_strides_[1] + i * bias_strides_[2] +
                                            valid.bias_column(j) * bias_strides_[3]);
        const auto bias = static_cast<float>(bias_.v[at]);
        const double plain = static_cast<double>(x) * scale_, off = order_.loose * std::fabs(plain);
        x = std::fmaf(x, scale_, bias);
        if (const double low = add_bias(plain - off, bias), high = add_bias(plain + off, bias); low < high)
          width_[static_cast<size_t>(j)] = high - low;
      }
      if (j >= seen) x = -INFINITY;
    }
    const int64_t slice = sm90::few_slice_keys(static_cast<int>(std::max<int64_t>(1, valid.all)));
    const int64_t block = order_.slices > 0  ? slice
                          : order_.block > 0 ? order_.block
                                             : keys,
                  blocks = (keys + block - 1) / block, split = std::max(order_.slices, order_.split);
    std::vector<RowState> states(static_cast<size_t>(split));
    for (RowState& r : states)
      r.o.assign(static_cast<size_t>(panels.size()) * kCoreLanes, 0.0f), r.off.assign(r.o.size(), 0.0);
    for (int64_t n = 0; n < blocks; ++n) {
      const int64_t at = (order_.backward ? blocks - 1 - n : n) * block;
      see_block(s, at, std::min(at + block, keys), states[static_cast<size_t>(n % split)], panels, v);
    }
    if (order_.slices > 0) return join_all(states);
    return order_.split == 1 ? std::move(states[0]) : join(states);
  }

 private:
  // The factor of what is there already; exact where it is 0 or 1.
  float weigh(const std::vector<float>& s, int64_t first, int64_t last, RowState& r) {
    const auto n = static_cast<size_t>(last - first);
    const float most = *std::max_element(s.begin() + first, s.begin() + last), scale = a_.has_bias ? 1.0f : scale_;
    float shrink = 0, subtract = 0;
    if (order_.fused_offset) {
      const float offset = std::fmaf(-most, scale, codes_ ? kLog2Of448 : 0.0f), before = r.offset;
      r.offset = std::min(offset, before);
      shrink = r.started ? exp2_flushed(r.offset - before) : 0.0f;
      subtract = -r.offset;
    } else {
      const float top = std::max(r.top, most * scale), base = top == -INFINITY ? 0.0f : top;
      shrink = shrink_to(r.top, base);
      r.top = top;
      subtract = codes_ && !a_.has_bias ? base - kLog2Of448 : base;
    }
    weights_.resize(n), low_.resize(n), high_.resize(n);
    double sum = 0;
    const double error = kWeightError + loose_error(s, first, last, most);
    for (size_t j = 0; j < n; ++j) {
      const float x = s[static_cast<size_t>(first) + j];
      // With a bias the difference comes first: where f32 lost the scores it is exactly 0.
      const float exponent =
          a_.has_bias ? std::fmaf(x - subtract, kLog2e, codes_ ? kLog2Of448 : 0.0f) : std::fmaf(x, scale, -subtract);
      const double p = std::exp2(static_cast<double>(exponent));
      const double flushed = p < 0x1p-126 ? 0 : p;  // ftz
      weights_[j] = static_cast<float>(flushed), low_[j] = static_cast<float>(std::max(0.0, p * (1 - error))),
      high_[j] = static_cast<float>(p * (1 + error));
      sum += flushed;
    }
    for (std::vector<float>* w : {&weights_, &low_, &high_}) {
      code_.resize(n * 2);
      weight_.encode(w->data(), static_cast<int64_t>(n), code_.data(), 0);
      weight_.decode(code_.data(), 0, static_cast<int64_t>(n), w->data());
    }
    r.sum = r.sum * shrink + sum;
    return shrink;
  }

  // Of weights and sums when the greatest score rises to `base`.
  float shrink_to(float top, float base) const {
    return exp2_flushed(a_.has_bias ? (top - base) * kLog2e : top - base);
  }

  // Of the weights of keys [first, last), where scores are loose. With a bias: what is left of that once it is added.
  double loose_error(const std::vector<float>& s, int64_t first, int64_t last, float most) const {
    if (!std::isfinite(most)) return 0;
    if (!a_.has_bias) return order_.loose * std::fabs(most * scale_);
    double widest = 0;
    for (auto j = static_cast<size_t>(first); j < static_cast<size_t>(last); ++j) {
      if (s[j] >= most - kNoWeight) widest = std::max(widest, width_[j]);
    }
    return std::expm1(widest);
  }

  void see_block(const std::vector<float>& s, int64_t first, int64_t last, RowState& r, std::vector<CorePanel>& panels,
                 const std::vector<float>& v) {
    const float shrink = weigh(s, first, last, r);
    const bool exact_shrink = shrink == 0.0f || shrink == 1.0f;
    row_.assign(static_cast<size_t>(a_.keys), 0.0f);
    std::copy(weights_.begin(), weights_.end(), row_.begin() + first);
    uncertain_.clear();
    for (size_t j = 0; j < weights_.size(); ++j) {
      if (low_[j] != high_[j]) uncertain_.push_back(static_cast<int64_t>(j));
    }
    const int64_t middle = order_.first_product > first && order_.first_product < last ? order_.first_product : first;
    const double instructions = static_cast<double>((last - first + order_.core->products - 1) / order_.core->products);
    for (size_t p = 0; p < panels.size(); ++p) {
      float before[kCoreLanes], sums[kCoreLanes] = {};
      float* o = r.o.data() + p * kCoreLanes;
      std::copy_n(o, kCoreLanes, before);
      if (!order_.fresh) {
        for (int c = 0; c < kCoreLanes; ++c) sums[c] = before[c] * shrink;
      }
      panels[p].set_row(row_.data(), weight_.min_exponent);
      add_products(panels[p], static_cast<int64_t>(p) * kCoreLanes, middle, last, v, sums);
      if (middle > first) add_products(panels[p], static_cast<int64_t>(p) * kCoreLanes, first, middle, v, sums);
      for (int c = 0; c < kCoreLanes; ++c) {
        o[c] = order_.fresh ? std::fmaf(before[c], shrink, sums[c]) : sums[c];
        double off = r.off[p * kCoreLanes + static_cast<size_t>(c)] * shrink;
        if (!exact_shrink || off > 0) off += std::fabs(before[c] * shrink) * (sm90::kExp2Error + 0x1p-23);
        const auto channel = static_cast<int64_t>(p) * kCoreLanes + c;
        if (channel < a_.value_size) {
          for (const int64_t j : uncertain_)
            off += static_cast<double>(high_[static_cast<size_t>(j)] - low_[static_cast<size_t>(j)]) *
                   std::fabs(v[static_cast<size_t>((first + j) * a_.value_size + channel)]);
        }
        if (order_.loose > 0) off += Near::unit(o[c]);
        // Other codes, or another number to begin with, are truncated elsewhere: by two units of each instruction.
        if (off > 0)
          off += 2 * instructions *
                 std::ldexp(largest_term(before[c] * shrink, o[c], first, channel, v), -order_.core->kept_bits);
        r.off[p * kCoreLanes + static_cast<size_t>(c)] = off;
      }
    }
    r.started = true;
  }

  // Products of the row's weights with the channels of a panel, over [first, last) of the keys.
  void add_products(const CorePanel& panel, int64_t channel, int64_t first, int64_t last, const std::vector<float>& v,
                    float* sums) const {
    float fast[kCoreLanes];
    std::copy_n(sums, kCoreLanes, fast);
    if (panel.sum(*order_.core, first, last, fast)) {
      std::copy_n(fast, kCoreLanes, sums);
      return;
    }
    // Weights so small that f32 does not hold their products: one instruction after the other.
    const int least = info(a_.v.element).min_exponent;
    std::vector<float> column(static_cast<size_t>(order_.core->products));
    for (int64_t c = 0; c < kCoreLanes && channel + c < a_.value_size; ++c) {
      for (int64_t at = first; at < last; at += order_.core->products) {
        const int64_t count = std::min<int64_t>(order_.core->products, last - at);
        for (int64_t j = 0; j < count; ++j)
          column[static_cast<size_t>(j)] = v[static_cast<size_t>((at + j) * a_.value_size + channel + c)];
        sums[c] =
            fused_sum(*order_.core, sums[c], {row_.data() + at, weight_.min_exponent}, {column.data(), least}, count);
      }
    }
  }

  // Of a sum that began with `before` and ended with `after`: the largest number that its terms were aligned to.
  double largest_term(float before, float after, int64_t first, int64_t channel, const std::vector<float>& v) const {
    double most = std::max(std::fabs(before), std::fabs(after));
    for (size_t j = 0; j < weights_.size() && channel < a_.value_size; ++j)
      most = std::max(
          most,
          std::fabs(
              static_cast<double>(weights_[j]) *
              v[(static_cast<size_t>(first) + j) * static_cast<size_t>(a_.value_size) + static_cast<size_t>(channel)]));
    return most;
  }

  // Two warpgroups of a block first, then the blocks of a cluster.
  RowState join(const std::vector<RowState>& states) const {
    if (states.size() == 2) return join_all(states);
    std::vector<RowState> pairs;
    for (size_t i = 0; i < states.size(); i += 2) pairs.push_back(join_all(std::span(states).subspan(i, 2)));
    return join_all(pairs);
  }

  RowState join_all(std::span<const RowState> states) const {
    RowState all = states[0];
    float top = -INFINITY;
    for (const RowState& r : states) top = std::max(top, r.top);
    const float base = top == -INFINITY ? 0.0f : top;
    all.sum = 0;
    for (size_t c = 0; c < all.o.size(); ++c) {
      double o = 0, off = 0, largest = 0;
      for (const RowState& r : states) {
        const double factor = shrink_to(r.top, base), part = r.o[c] * factor;
        o += part, off += r.off[c] * factor + std::fabs(part) * (sm90::kExp2Error + 0x1p-23);
        largest = std::max(largest, std::fabs(o));
      }
      all.o[c] = static_cast<float>(o),
      all.off[c] = off + static_cast<double>(states.size() - 1) * Near::unit(static_cast<float>(largest));
    }
    all.top = top;
    for (const RowState& r : states) all.sum += r.sum * shrink_to(r.top, base);
    return all;
  }

  const AttentionOrder order_;
  const AttentionProblem a_;
  const ElementInfo& weight_;
  bool codes_ = false;
  float scale_ = 1;  // of the scores: to units of log2 or, with a bias, to their own
  Dense bias_;
  const int32_t* lengths_ = nullptr;
  Shape bias_strides_ = {0, 0, 0, 0};
  std::vector<float> weights_, low_, high_, row_;
  std::vector<double> width_;  // per key of the row: how far a loose score may be off, the bias added
  std::vector<uint8_t> code_;
  std::vector<int64_t> uncertain_;
};

}  // namespace

Emulation emulate_attention(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out,
                            const AttentionOrder& order) {
  const AttentionProblem a = AttentionProblem::of(problem);
  const std::vector<float> q = decode_codes(in[0]), k = decode_codes(in[1]), v = decode_codes(in[2]);
  const float v_scale = tensor_scale(in[2]), y_scale = tensor_scale(out[0]);
  const double factor = static_cast<double>(v_scale) / y_scale;
  // Lanes add up their weights one by one, then each other's: roundings to both sides.
  const double sum_error = (8 + 4 * std::sqrt(static_cast<double>(a.keys))) * 0x1p-24 + sm90::kExp2Error;
  EmulatedResult y;
  y.low.resize(static_cast<size_t>(a.batch * a.queries * a.heads * a.value_size));
  y.high = y.low;
  parallel_for(a.batch * a.heads, 1, [&](int64_t begin, int64_t end) {
    Rows rows(problem, in, order);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t b = item / a.heads, h = item % a.heads, g = h / (a.heads / a.kv_heads);
      const std::vector<float> queries = head_of(q, problem.in[0].shape, b, h);
      std::vector<float> keys = head_of(k, problem.in[1].shape, b, g), values = head_of(v, problem.in[2].shape, b, g);
      // Keys that do not exist: scores that are masked, weights of 0 on values that the kernels make 0.
      std::fill(keys.begin() + rows.valid_of(b).all * a.head_size, keys.end(), 0.0f);
      std::fill(values.begin() + rows.valid_of(b).all * a.value_size, values.end(), 0.0f);
      std::vector<float> scores(static_cast<size_t>(a.queries * a.keys));
      const int least = info(a.q.element).min_exponent;
      emulate_sums({order.core}, {queries.data(), least}, {keys.data(), least}, scores.data(), a.queries, a.keys,
                   a.head_size);
      std::vector<CorePanel> panels = panels_of(values, a.keys, a.value_size, info(a.v.element).min_exponent);
      for (int64_t i = 0; i < a.queries; ++i) {
        std::vector<float> row(scores.begin() + i * a.keys, scores.begin() + (i + 1) * a.keys);
        const RowState r = rows.run(row, b, h, i, panels, values);
        const double divide = r.sum == 0 ? 0 : factor / r.sum;
        for (int64_t c = 0; c < a.value_size; ++c) {
          const double o = r.o[static_cast<size_t>(c)] * divide;
          const double off = r.off[static_cast<size_t>(c)] * divide + std::fabs(o) * (sum_error + 0x1p-21);
          const auto at = static_cast<size_t>(((b * a.queries + i) * a.heads + h) * a.value_size + c);
          y.low[at] = static_cast<float>(o - off), y.high[at] = static_cast<float>(o + off);
        }
      }
    }
  });
  return {std::move(y)};
}

}  // namespace tessera
