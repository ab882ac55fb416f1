// SPDX-License-Identifier: Apache-2.0
#include "ops/conv2d/emulate.h"

#include <algorithm>

#include "op/reference.h"
#include "ops/conv2d/windows.h"

namespace tessera {
namespace {

// Rows of windows that are multiplied at a time.
constexpr int64_t kRows = 1024;

// `count` rows of taps of c numbers, each filled up with zeros to `wide`. read(row, first, numbers, to).
template <class Read>
std::vector<float> widened(int64_t count, int64_t taps, int64_t c, int64_t wide, const Read& read) {
  std::vector<float> rows(static_cast<size_t>(count * taps * wide));
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t t = 0; t < taps; ++t) read(r, t * c, c, rows.data() + (r * taps + t) * wide);
  }
  return rows;
}

}  // namespace

Emulation emulate_conv2d(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  Problem dense = problem;
  dense.in[0].strides = dense_strides(problem.in[0].shape);
  const Conv2dProblem q = Conv2dProblem::of(dense);
  const Product p = product_of_conv2d(problem);
  const Windows windows(q);
  const SumOrder order{wgmma_core(p.x.element)};
  const int64_t products = order.core != nullptr ? order.core->products : 1, taps = q.kh * q.kw,
                wide = divide_up(q.c, products) * products;
  const std::vector<float> x = decode_codes(in[0]), w = decode_codes(in[1]);
  std::vector<float> sums(static_cast<size_t>(p.m * p.n)), piece;
  for (int64_t group = 0; group < q.groups; ++group) {
    const float* own = w.data() + group * q.n * q.k;
    const std::vector<float> weights = widened(
        q.n, taps, q.c, wide,
        [&](int64_t row, int64_t first, int64_t count, float* to) { std::copy_n(own + row * q.k + first, count, to); });
    for (int64_t first_row = 0; first_row < p.m; first_row += kRows) {
      const int64_t rows = std::min(kRows, p.m - first_row);
      const std::vector<float> pixels =
          widened(rows, taps, q.c, wide, [&](int64_t row, int64_t first, int64_t count, float* to) {
            windows.read(x.data(), group, first_row + row, first, count, to);
          });
      piece.resize(static_cast<size_t>(rows * q.n));
      emulate_sums(order, {pixels.data(), info(p.x.element).min_exponent},
                   {weights.data(), info(p.w.element).min_exponent}, piece.data(), rows, q.n, taps * wide);
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(piece.data() + r * q.n, q.n, sums.data() + (first_row + r) * p.n + group * q.n);
    }
  }
  return emulate_epilogue(problem, p, sums, in, out, Mainloop::kNormal);
}

}  // namespace tessera
