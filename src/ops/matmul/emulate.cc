// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/emulate.h"

#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "op/errors.h"
#include "op/f64_product.h"
#include "op/reference.h"

namespace tessera {

Emulation emulate_wgmma(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out,
                        const SumOrder& order, Mainloop mainloop) {
  const MatmulProblem p = MatmulProblem::of(problem);
  const std::vector<float> x = decode_codes(in[0]), w = decode_codes(in[1]);
  std::vector<float> sums(static_cast<size_t>(p.m * p.n));
  emulate_sums(order, {x.data(), info(p.x.element).min_exponent}, {w.data(), info(p.w.element).min_exponent},
               sums.data(), p.m, p.n, p.k);
  return emulate_epilogue(problem, p, sums, in, out, mainloop);
}

namespace {

// Both ends of each sum, in the result's units before the program.
struct Ends {
  std::vector<double> low, high;
};

Ends sums_of_library(const MatmulProblem& p, std::span<const TensorView> in, const TensorCore& core) {
  const std::vector<float> x = decode_codes(in[0]), w = decode_codes(in[1]);
  const double x_scale = tensor_scale(in[0]);
  const std::vector<float> w_scale =
      p.w.scaled() ? scales_of(p.w.scale, in[1], p.n) : std::vector<float>(static_cast<size_t>(p.n), 1.0f);
  // Libraries add up 16-bit products in more than one way, f32 ones included: three times the walk.
  const double multiple = core.kept_bits < 20 ? 1 : 3;
  const double walk =
      multiple * std::ldexp(std::sqrt(1 + std::ceil(static_cast<double>(p.k) / core.products)), -core.kept_bits);
  std::vector<double> squares(static_cast<size_t>(p.m * p.n)), exact(squares.size()),
      x2(static_cast<size_t>(p.m * p.k)), w2(static_cast<size_t>(p.n * p.k));
  std::vector<float> sums(squares.size());
  Ends ends;
  for (int64_t b = 0; b < p.batch; ++b) {
    const float *xb = x.data() + b * p.m * p.k, *wb = w.data() + (p.batch > 1 ? b * p.n * p.k : 0);
    emulate_sums({&core}, {xb, info(p.x.element).min_exponent}, {wb, info(p.w.element).min_exponent}, sums.data(), p.m,
                 p.n, p.k);
    for (size_t i = 0; i < x2.size(); ++i) x2[i] = static_cast<double>(xb[i]) * xb[i];
    for (size_t i = 0; i < w2.size(); ++i) w2[i] = static_cast<double>(wb[i]) * wb[i];
    f64_product(x2.data(), w2.data(), squares.data(), p.m, p.n, p.k);
    std::copy_n(xb, x2.size(), x2.begin());
    std::copy_n(wb, w2.size(), w2.begin());
    f64_product(x2.data(), w2.data(), exact.data(), p.m, p.n, p.k);
    for (size_t i = 0; i < sums.size(); ++i) {
      const double sum = sums[i], scale = x_scale * w_scale[i % static_cast<size_t>(p.n)];
      // Fewer instructions in a row lose less to truncation: down to nothing.
      const double e =
          walk * std::sqrt(squares[i] + sum * sum) + std::fabs(sum - exact[i]) + 5 * 0x1p-24 * std::fabs(sum);
      ends.low.push_back((sum - e) * scale), ends.high.push_back((sum + e) * scale);
    }
  }
  return ends;
}

// Rounding keeps the order of numbers. What the element does not hold stays as it is.
void round_ends(LibraryProduct product, Ends& ends) {
  if (product.element == Element::f32) return;
  const ElementInfo& element = info(product.element);
  for (std::vector<double>* end : {&ends.low, &ends.high}) {
    const auto count = static_cast<int64_t>(end->size());
    Buffer codes(static_cast<size_t>(packed_bytes(product.element, count)));
    std::vector<double> rounded(end->size());
    element.encode_f64(end->data(), count, codes.data(), 0);
    element.decode_f64(codes.data(), 0, count, rounded.data());
    for (size_t i = 0; i < rounded.size(); ++i) {
      double& v = (*end)[i];
      if (!(std::fabs(v) <= element.max)) continue;
      const bool keep = product.or_f32 && (end == &ends.low ? v < rounded[i] : v > rounded[i]);
      if (!keep) v = rounded[i];
    }
  }
}

}  // namespace

Emulation emulate_library(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out,
                          const TensorCore& core, LibraryProduct product, double activation_error) {
  Ends ends = sums_of_library(MatmulProblem::of(problem), in, core);
  round_ends(product, ends);
  std::vector<double> y(ends.low.size());
  Errors off(y.size());
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = ends.low[i] + (ends.high[i] - ends.low[i]) / 2, off[i] = (ends.high[i] - ends.low[i]) / 2;
  std::vector<Dense> numbers;
  for (const TensorView& t : in) numbers.push_back(t.desc != nullptr ? decode(t) : Dense{});
  off = errors_after_program(problem, numbers, y, std::move(off), activation_error);
  const double unit = 1.0 / tensor_scale(out[0]);
  EmulatedResult result;
  for (size_t i = 0; i < y.size(); ++i) {
    const double e = off[i] + 0x1p-22 * std::fabs(y[i]);
    result.low.push_back(static_cast<float>((y[i] - e) * unit)),
        result.high.push_back(static_cast<float>((y[i] + e) * unit));
  }
  return {std::move(result)};
}

}  // namespace tessera
