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

// The errors of one problem, a row of results at a time.
class RowErrors {
 public:
  RowErrors(const AttentionProblem& a, std::span<const Dense> in, const Dense& y, const Roundings& r)
      : a_(a),
        in_(in),
        y_(y),
        r_(r),
        computed_(info(r.computed())),
        value_(brought(a.v)),
        dot_(brought(a.q) + brought(a.k) + r.sum(a.head_size)),
        sums_(2 * r.sum(2 * a.keys)),
        exponential_((computed_.bits == 8 ? 24 : 8) * r.unit()),
        weight_(static_cast<size_t>(a.keys)),
        error_(weight_.size()),
        magnitude_(static_cast<size_t>(a.value_size)),
        all_(magnitude_.size()),
        rounded_(weights(), &weights() == &computed_ ? r.operand() : 0) {
    if (!a.has_bias) return;
    const Shape& shape = in[3].shape;
    const Shape dense = dense_strides(shape);
    for (size_t i = 0; i < shape.size(); ++i) bias_strides_[4 - shape.size() + i] = shape[i] == 1 ? 0 : dense[i];
  }

  // e[0, value_size) of query i of head h.
  void take(int64_t b, int64_t h, int64_t i, std::vector<double>& e) {
    const int64_t g = h / (a_.heads / a_.kv_heads);
    valid_ = a_.valid_keys_of(a_.has_lengths ? in_[4].v.data() : nullptr, b);
    seen_ = valid_.seen_by(i, a_.queries, a_.causal);
    take_scores(b, h, i, g);
    if (top_ == -INFINITY) return;  // no key is seen: the result is exactly 0
    const size_t at = static_cast<size_t>(((b * a_.queries + i) * a_.heads + h) * a_.value_size);
    a_.p ? of_rounded_weights(b, g, at, e) : of_weights(b, g, at, e);
  }

 private:
  const ElementInfo& weights() const { return info(a_.p ? a_.p->element : Element::f32); }
  double brought(const QuantType& t) const { return holds(computed_, info(t.element)) ? 0 : r_.operand(); }
  // Errors of terms add up by their magnitudes, or as a walk.
  double sized(double v) const { return r_.walk() ? v * v : std::fabs(v); }

  void take_scores(int64_t b, int64_t h, int64_t i, int64_t g) {
    const double u = r_.unit(), *q = row_of(in_[0], b, i, h);
    top_ = -INFINITY;
    for (int64_t j = 0; j < seen_; ++j) {
      const double* k = row_of(in_[1], b, j, g);
      double s = 0, size = 0;
      for (int64_t d = 0; d < a_.head_size; ++d) s += q[d] * k[d], size += sized(q[d] * k[d]);
      if (r_.walk()) size = std::sqrt(size + s * s);
      double &score = weight_[static_cast<size_t>(j)], &error = error_[static_cast<size_t>(j)];
      score = s * a_.scale;
      error = dot_ * std::fabs(a_.scale) * size + 6 * u * std::fabs(score);
      if (a_.has_bias)
        take_bias(in_[3].v[static_cast<size_t>(b * bias_strides_[0] + h * bias_strides_[1] + i * bias_strides_[2] +
                                               valid_.bias_column(j) * bias_strides_[3])],
                  score, error);
      top_ = std::max(top_, score);
    }
    // Differences from the maximum, and their change of units, are rounded too; those of scores without a bias lie in
    // the six units above.
    for (int64_t j = 0; a_.has_bias && j < seen_; ++j) {
      const double below = top_ - weight_[static_cast<size_t>(j)];
      if (below <= 2 * kNoWeight) error_[static_cast<size_t>(j)] += 4 * u * below;
    }
  }

  // Rounding never changes the order of two numbers: a sum lies between those of both ends of the score. Where they are
  // the same number (a mask that swallows scores) there is no error left.
  static void take_bias(double bias, double& score, double& error) {
    const double sum = add_bias(score, bias), low = add_bias(score - error, bias), high = add_bias(score + error, bias);
    error = low == high ? 0 : std::max(high - sum, sum - low);
    score = sum;
  }

  void of_rounded_weights(int64_t b, int64_t g, size_t at, std::vector<double>& e) {
    const auto n = static_cast<size_t>(seen_);
    rounded_.set({weight_.data(), n}, {error_.data(), n}, top_, exponential_);
    for (size_t j = 0; j < n; ++j) {
      const double off = (rounded_.error(j) + (sums_ + value_) * rounded_.code(j)) / rounded_.divisor();
      if (off == 0) continue;
      const double* v = row_of(in_[2], b, static_cast<int64_t>(j), g);
      for (size_t d = 0; d < all_.size(); ++d) e[at + d] += sized(off * v[d]);
    }
    for (size_t d = 0; d < all_.size(); ++d) {
      if (r_.walk()) e[at + d] = std::sqrt(e[at + d]);
      e[at + d] += (rounded_.sum_error() + sums_ + 8 * r_.unit()) * std::fabs(y_.v[at + d]) + 0x1p-126;
    }
  }

  void of_weights(int64_t b, int64_t g, size_t at, std::vector<double>& e) {
    const double u = r_.unit(), lost = std::max(0x1p-126, smallest(computed_) / 2);
    double score_error = 0, sum = 0;
    for (int64_t j = 0; j < seen_; ++j) {
      double& w = weight_[static_cast<size_t>(j)];
      // The error of a masked key (-1e9, -inf) is large and does not matter: its weight is 0 all the same.
      if (w + error_[static_cast<size_t>(j)] >= top_ - kNoWeight)
        score_error = std::max(score_error, error_[static_cast<size_t>(j)]);
      sum += w = std::exp(w - top_);
    }
    const double weight_error = std::expm1(2 * score_error) + 16 * u + sums_ + r_.operand() + 2 * value_;
    std::fill(magnitude_.begin(), magnitude_.end(), 0.0);
    std::fill(all_.begin(), all_.end(), 0.0);
    for (int64_t j = 0; j < seen_; ++j) {
      const double* v = row_of(in_[2], b, j, g);
      for (size_t d = 0; d < all_.size(); ++d) {
        magnitude_[d] += sized(weight_[static_cast<size_t>(j)] / sum * v[d]);
        all_[d] += std::fabs(v[d]);
      }
    }
    for (size_t d = 0; d < all_.size(); ++d) {
      if (r_.walk()) magnitude_[d] = std::sqrt(magnitude_[d]) + std::fabs(y_.v[at + d]);
      e[at + d] =
          weight_error * magnitude_[d] + lost * (all_[d] / std::max(1.0, sum) + 1) + 4 * u * std::fabs(y_.v[at + d]);
    }
  }

  const AttentionProblem& a_;
  const std::span<const Dense> in_;
  const Dense& y_;
  const Roundings& r_;
  const ElementInfo& computed_;
  const double value_, dot_, sums_;
  // Eight roundings where a weight is multiplied by 448 after the exponential. A kernel that multiplies codes takes
  // 2^(x + log2 448): the offset, the sum and log2 448 itself are each rounded at about 8, by 2^-21 at most, which is
  // 5.6 units of the weight.
  const double exponential_;
  Shape bias_strides_ = Shape(4, 0);  // in[3] is dense here: 0 where broadcast
  // Of the row at hand.
  ValidKeys<int64_t> valid_ = {};
  int64_t seen_ = 0;  // keys
  double top_ = 0;
  std::vector<double> weight_, error_, magnitude_, all_;
  RoundedWeights rounded_;
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
  std::vector<double> e(y.v.size());
  parallel_for(a.batch * a.heads * a.queries, 16, [&](int64_t begin, int64_t end) {
    RowErrors row(a, in, y, r);
    for (int64_t item = begin; item < end; ++item)
      row.take(item / (a.heads * a.queries), item / a.queries % a.heads, item % a.queries, e);
  });
  return e;
}

}  // namespace tessera
