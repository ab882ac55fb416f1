// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/attention/attention.h"

namespace tessera {
namespace {

constexpr double kNoWeight = 110;  // exp(-110) is below the smallest subnormal f32

const double* row_of(const Dense& d, int64_t b, int64_t t, int64_t h) {
  return d.v.data() + ((b * d.shape[1] + t) * d.shape[2] + h) * d.shape[3];
}

// The weights of one row, P = exp(s - top), as a variant may make them (`low` to `high`), and what rounding to the type
// of attr `p` makes of that: rounding never changes the order of two numbers, so a code lies between those of the ends,
// and where no tie lies between them there is no error at all.
class RoundedWeights {
 public:
  // early: relative error of weights that are rounded against another maximum than the row's; 0: they are codes as
  // defined.
  RoundedWeights(const ElementInfo& element, double early) : element_(element), early_(early) {}

  // Scores of the row with their errors; `exponential`: the relative error of a weight whose score is right. The
  // largest may err upwards by whichever key comes out on top.
  void set(std::span<const double> scores, std::span<const double> errors, double top, double exponential) {
    const size_t n = scores.size();
    double top_error = 0;
    for (size_t j = 0; j < n; ++j) {
      if (scores[j] == top) top_error = std::max(top_error, errors[j]);
      if (scores[j] + errors[j] > top) top_error = std::max(top_error, scores[j] + errors[j] - top);
    }
    sum_ = low_sum_ = high_sum_ = 0;
    for (std::vector<double>* v : {&code_, &low_, &high_}) v->assign(n, 0.0);
    for (size_t j = 0; j < n; ++j) {
      // The error of a masked key (-1e9, -inf) is large and does not matter: its weight is 0 all the same.
      if (!(scores[j] + errors[j] + top_error >= top - kNoWeight)) continue;
      const double off = errors[j] + top_error;
      sum_ += code_[j] = std::exp(scores[j] - top);
      low_sum_ += low_[j] = code_[j] * std::exp(-off) * (1 - exponential);
      high_sum_ += high_[j] = std::min(1.0, std::exp(scores[j] - top + off) * (1 + exponential));
    }
    low_sum_ = std::max(1.0, low_sum_);  // the key on top has weight 1 whatever its score
    round_weights(element_, code_, codes_);
    if (early_ == 0) {
      for (std::vector<double>* v : {&low_, &high_}) round_weights(element_, *v, codes_);
      return;
    }
    const double half_step = smallest(element_) / 2;  // of subnormals; rescaling never makes a weight larger
    for (size_t j = 0; j < n; ++j) {
      if (high_[j] == 0) continue;  // masked
      low_[j] = std::max(0.0, element_.max * low_[j] * (1 - early_) - half_step);
      high_[j] = element_.max * high_[j] * (1 + early_) + half_step;
    }
  }
  double code(size_t j) const { return high_[j]; }  // at most
  double error(size_t j) const { return std::max(high_[j] - code_[j], code_[j] - low_[j]); }
  double divisor() const { return element_.max * low_sum_; }                            // at least
  double sum_error() const { return std::max(high_sum_ / sum_, sum_ / low_sum_) - 1; }  // relative

 private:
  const ElementInfo& element_;
  const double early_;
  std::vector<double> code_, low_, high_;
  std::vector<uint8_t> codes_;
  double sum_ = 0, low_sum_ = 0, high_sum_ = 0;
};

}  // namespace

// A score errs by its dot product, its scaling and its distance from the row's maximum, a few roundings each; the
// weights p by the exponential of twice the worst of the row (a weight and their sum), and by being brought into the
// type they are multiplied in (fp16: subnormals lose up to 2^-25; fp32: they may be flushed). Running sums are rescaled
// at most once per key. With attr `p` the weights are codes, right or the neighbour where the error of the score takes
// them across a tie (RoundedWeights). A variant that multiplies in the weights' own type and states an operand error
// rounds them before the row's maximum is known, and rescales them as numbers: its weights are off by half a step of
// that rounding, those of the definition by half a step of theirs.
std::vector<double> attention_errors(const Problem& p, std::span<const Dense> in, const Dense& y, const Roundings& r) {
  const AttentionProblem a = AttentionProblem::of(p);
  const double u = r.unit();
  const ElementInfo& computed = info(r.computed());
  // Errors of terms add up by their magnitudes, or as a walk.
  const auto sized = [&](double v) { return r.walk() ? v * v : std::fabs(v); };
  const auto brought = [&](const QuantType& t) { return holds(computed, info(t.element)) ? 0 : r.operand(); };
  const double value = brought(a.v);
  const double dot = brought(a.q) + brought(a.k) + r.sum(a.head_size);
  const double sums = 2 * r.sum(2 * a.keys);
  // Eight roundings where a weight is multiplied by 448 after the exponential. A kernel that multiplies codes takes
  // 2^(x + log2 448): the offset, the sum and log2 448 itself are each rounded at about 8, by 2^-21 at most, which is
  // 5.6 units of the weight.
  const double exponential = (computed.bits == 8 ? 24 : 8) * u;
  const double lost = std::max(0x1p-126, smallest(computed) / 2);
  Shape bias_strides(4, 0);  // in[3] is dense here: 0 where broadcast
  if (a.has_bias) {
    const Shape& shape = in[3].shape;
    const Shape dense = dense_strides(shape);
    for (size_t i = 0; i < shape.size(); ++i) bias_strides[4 - shape.size() + i] = shape[i] == 1 ? 0 : dense[i];
  }
  std::vector<double> e(y.v.size());
  parallel_for(a.batch * a.heads * a.queries, 16, [&](int64_t begin, int64_t end) {
    std::vector<double> weight(static_cast<size_t>(a.keys)), error(weight.size()),
        magnitude(static_cast<size_t>(a.value_size)), all(magnitude.size());
    const ElementInfo& weights = info(a.p ? a.p->element : Element::f32);
    RoundedWeights rounded(weights, &weights == &computed ? r.operand() : 0);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t b = item / (a.heads * a.queries), h = item / a.queries % a.heads, i = item % a.queries,
                    g = h / (a.heads / a.kv_heads);
      const int64_t seen = a.causal ? i + a.keys - a.queries + 1 : a.keys;
      const double* q = row_of(in[0], b, i, h);
      double top = -INFINITY, score_error = 0, sum = 0;
      for (int64_t j = 0; j < seen; ++j) {
        const double* k = row_of(in[1], b, j, g);
        double s = 0, size = 0;
        for (int64_t d = 0; d < a.head_size; ++d) s += q[d] * k[d], size += sized(q[d] * k[d]);
        if (r.walk()) size = std::sqrt(size + s * s);
        const double plain = s * a.scale;
        const double bias = a.has_bias ? in[3].v[static_cast<size_t>(b * bias_strides[0] + h * bias_strides[1] +
                                                                     i * bias_strides[2] + j * bias_strides[3])]
                                       : 0;
        weight[static_cast<size_t>(j)] = plain + bias;
        error[static_cast<size_t>(j)] = dot * std::fabs(a.scale) * size + 6 * u * (std::fabs(plain) + std::fabs(bias));
        top = std::max(top, plain + bias);
      }
      if (top == -INFINITY) continue;  // no key is seen: the result is exactly 0
      const size_t at = static_cast<size_t>(((b * a.queries + i) * a.heads + h) * a.value_size);
      if (a.p) {
        const auto n = static_cast<size_t>(seen);
        rounded.set({weight.data(), n}, {error.data(), n}, top, exponential);
        for (size_t j = 0; j < n; ++j) {
          const double off = (rounded.error(j) + (sums + value) * rounded.code(j)) / rounded.divisor();
          if (off == 0) continue;
          const double* v = row_of(in[2], b, static_cast<int64_t>(j), g);
          for (size_t d = 0; d < all.size(); ++d) e[at + d] += sized(off * v[d]);
        }
        for (size_t d = 0; d < all.size(); ++d) e[at + d] = r.walk() ? std::sqrt(e[at + d]) : e[at + d];
        for (size_t d = 0; d < all.size(); ++d)
          e[at + d] += (rounded.sum_error() + sums + 8 * u) * std::fabs(y.v[at + d]) + 0x1p-126;
        continue;
      }
      for (int64_t j = 0; j < seen; ++j) {
        double& w = weight[static_cast<size_t>(j)];
        // The error of a masked key (-1e9, -inf) is large and does not matter: its weight is 0 all the same.
        if (w + error[static_cast<size_t>(j)] >= top - kNoWeight)
          score_error = std::max(score_error, error[static_cast<size_t>(j)]);
        sum += w = std::exp(w - top);
      }
      const double weight_error = std::expm1(2 * score_error) + 16 * u + sums + r.operand() + 2 * value;
      std::fill(magnitude.begin(), magnitude.end(), 0.0);
      std::fill(all.begin(), all.end(), 0.0);
      for (int64_t j = 0; j < seen; ++j) {
        const double* v = row_of(in[2], b, j, g);
        for (size_t d = 0; d < all.size(); ++d) {
          magnitude[d] += sized(weight[static_cast<size_t>(j)] / sum * v[d]);
          all[d] += std::fabs(v[d]);
        }
      }
      for (size_t d = 0; d < all.size(); ++d) {
        if (r.walk()) magnitude[d] = std::sqrt(magnitude[d]) + std::fabs(y.v[at + d]);
        e[at + d] =
            weight_error * magnitude[d] + lost * (all[d] / std::max(1.0, sum) + 1) + 4 * u * std::fabs(y.v[at + d]);
      }
    }
  });
  return e;
}

}  // namespace tessera
