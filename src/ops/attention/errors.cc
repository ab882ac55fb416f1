// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/attention/attention.h"

namespace tessera {
namespace {

constexpr double kNoWeight = 110;  // exp(-110) is below the smallest subnormal f32

// fp16 holds every f16 and e4m3 exactly, bf16 every bf16 and e4m3, fp32 all of them.
bool holds(const std::string& computed, Element e) {
  const std::string name = info(e).name;
  return computed == "fp32" || computed == "f64" || computed == name || (computed == "fp16" && name == "f16") ||
         (name == "e4m3" && (computed == "fp16" || computed == "bf16"));
}

const double* row_of(const Dense& d, int64_t b, int64_t t, int64_t h) {
  return d.v.data() + ((b * d.shape[1] + t) * d.shape[2] + h) * d.shape[3];
}

}  // namespace

// A score errs by its dot product, its scaling and its distance from the row's maximum, a few roundings each; the
// weights p by the exponential of twice the worst of the row (a weight and their sum), and by being brought into the
// type they are multiplied in (fp16: subnormals lose up to 2^-25; fp32: they may be flushed). Running sums are rescaled
// at most once per key.
std::vector<double> attention_errors(const Problem& p, std::span<const Dense> in, const Dense& y, const Roundings& r) {
  const AttentionProblem a = AttentionProblem::of(p);
  const double u = r.unit();
  const double operand = holds(r.computed(), a.q.element) ? 0 : r.operand();
  const double value = holds(r.computed(), a.v.element) ? 0 : r.operand();
  const double dot = 2 * operand + r.sum(a.head_size);
  const double sums = 2 * r.sum(2 * a.keys);
  const double lost = r.computed() == "fp16" ? 0x1p-25 : 0x1p-126;
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
    for (int64_t item = begin; item < end; ++item) {
      const int64_t b = item / (a.heads * a.queries), h = item / a.queries % a.heads, i = item % a.queries,
                    g = h / (a.heads / a.kv_heads);
      const int64_t seen = a.causal ? i + a.keys - a.queries + 1 : a.keys;
      const double* q = row_of(in[0], b, i, h);
      double top = -INFINITY, score_error = 0, sum = 0;
      for (int64_t j = 0; j < seen; ++j) {
        const double* k = row_of(in[1], b, j, g);
        double s = 0, size = 0;
        for (int64_t d = 0; d < a.head_size; ++d) s += q[d] * k[d], size += std::fabs(q[d] * k[d]);
        const double plain = s * a.scale;
        const double bias = a.has_bias ? in[3].v[static_cast<size_t>(b * bias_strides[0] + h * bias_strides[1] +
                                                                     i * bias_strides[2] + j * bias_strides[3])]
                                       : 0;
        weight[static_cast<size_t>(j)] = plain + bias;
        error[static_cast<size_t>(j)] = dot * std::fabs(a.scale) * size + 6 * u * (std::fabs(plain) + std::fabs(bias));
        top = std::max(top, plain + bias);
      }
      if (top == -INFINITY) continue;  // no key is seen: the result is exactly 0
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
          magnitude[d] += weight[static_cast<size_t>(j)] / sum * std::fabs(v[d]);
          all[d] += std::fabs(v[d]);
        }
      }
      const size_t at = static_cast<size_t>(((b * a.queries + i) * a.heads + h) * a.value_size);
      for (size_t d = 0; d < all.size(); ++d) {
        e[at + d] =
            weight_error * magnitude[d] + lost * (all[d] / std::max(1.0, sum) + 1) + 4 * u * std::fabs(y.v[at + d]);
      }
    }
  });
  return e;
}

}  // namespace tessera
