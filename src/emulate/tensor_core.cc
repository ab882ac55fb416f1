// SPDX-License-Identifier: Apache-2.0
#include "emulate/tensor_core.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "emulate/cuda_sums.h"
#include "emulate/tensor_core_lanes.h"

namespace tessera {
namespace {

constexpr int kNone = -10000;  // exponent of zero: takes no part in the alignment

int exponent_of(double x, int least) {
  if (x == 0) return kNone;
  return std::max(std::ilogb(x), least);
}

// The last step: truncates toward zero to the kept bits of an f32 number, whose least exponent is -126.
float truncated(double sum, int kept_bits) {
  if (sum == 0) return 0;
  const int step = std::max(std::ilogb(sum), -126) - kept_bits;
  return static_cast<float>(std::ldexp(std::trunc(std::ldexp(sum, -step)), step));
}

bool all_finite(const float* v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(v[i])) return false;
  }
  return true;
}

float plain_sum(const float* x, const float* w, int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += static_cast<double>(x[i]) * w[i];
  return static_cast<float>(sum);
}

// Bounds of the pieces of k that begin with an empty accumulator: [first, last) and whether the piece opens a slice.
struct Piece {
  int64_t first, last;
  bool opens_slice;
};
std::vector<Piece> pieces_of(const SumOrder& order, int64_t k) {
  std::vector<int64_t> slices = order.slices.empty() ? std::vector<int64_t>{0} : order.slices;
  slices.push_back(k);
  std::vector<Piece> pieces;
  for (size_t s = 0; s + 1 < slices.size(); ++s) {
    const int64_t length =
        order.promote_every > 0 ? order.promote_every : std::max<int64_t>(1, slices[s + 1] - slices[s]);
    for (int64_t at = slices[s]; at < slices[s + 1]; at += length)
      pieces.push_back({at, std::min(at + length, slices[s + 1]), at == slices[s]});
  }
  return pieces;
}

}  // namespace

float fused_sum(const TensorCore& core, float c, const CoreOperand& x, const CoreOperand& w, int64_t count) {
  int largest = exponent_of(c, -126);
  for (int64_t i = 0; i < count; ++i) {
    const int ex = exponent_of(x.numbers[i], x.least_exponent), ew = exponent_of(w.numbers[i], w.least_exponent);
    if (ex != kNone && ew != kNone) largest = std::max(largest, ex + ew);
  }
  if (largest == kNone) return 0;
  largest = std::max(largest, -126);
  const auto aligned = [&](double v) { return std::trunc(std::ldexp(v, core.fraction_bits - largest)); };
  double sum = aligned(c);  // at most 33 terms of 27 bits: exact
  for (int64_t i = 0; i < count; ++i) sum += aligned(static_cast<double>(x.numbers[i]) * w.numbers[i]);
  return truncated(std::ldexp(sum, largest - core.fraction_bits), core.kept_bits);
}

void emulate_sums(const SumOrder& order, const CoreOperand& x, const CoreOperand& w, float* sums, int64_t m, int64_t n,
                  int64_t k) {
  if (m == 0 || n == 0) return;
  std::vector<bool> odd_x(static_cast<size_t>(m)), odd_w(static_cast<size_t>(n));
  bool any = false;
  for (int64_t r = 0; r < m; ++r) any |= odd_x[static_cast<size_t>(r)] = !all_finite(x.numbers + r * k, k);
  for (int64_t r = 0; r < n; ++r) any |= odd_w[static_cast<size_t>(r)] = !all_finite(w.numbers + r * k, k);
  constexpr int64_t kMany = int64_t{1} << 31;  // products: about a second of one core
  if (!any && m * n * k >= kMany && emulate_sums_on_device(order, x, w, sums, m, n, k)) return;
  const std::vector<Piece> pieces = pieces_of(order, k);

  constexpr int kLanes = kCoreLanes;
  const int64_t groups = (n + kLanes - 1) / kLanes;
  // Few columns: share out rows too.
  const int64_t row_parts = groups >= 2 * threads() ? 1 : std::min<int64_t>(m, 2 * threads());
  const bool exact = order.core == nullptr, lanes = !exact && order.core->fraction_bits <= 25;
  const auto sum_piece = [&](const Piece& p, const float* row, int64_t first, int64_t count, const CorePanel& panel,
                             float* sum) {
    if (lanes && panel.sum(*order.core, p.first, p.last, sum)) return;
    for (int64_t c = 0; c < count; ++c) {
      const float* column = w.numbers + (first + c) * k;
      if (exact) {
        sum[c] = plain_sum(row + p.first, column + p.first, p.last - p.first);
        continue;
      }
      sum[c] = 0;  // whatever the lanes left
      for (int64_t at = p.first; at < p.last; at += order.core->products) {
        const int64_t some = std::min<int64_t>(order.core->products, p.last - at);
        sum[c] = fused_sum(*order.core, sum[c], {row + at, x.least_exponent}, {column + at, w.least_exponent}, some);
      }
    }
  };
  parallel_for(groups * row_parts, 1, [&](int64_t begin, int64_t end) {
    CorePanel panel;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item / row_parts * kLanes, count = std::min<int64_t>(kLanes, n - first),
                    part = item % row_parts;
      const int64_t row_begin = m * part / row_parts, row_end = m * (part + 1) / row_parts;
      if (lanes) panel.pack(w.numbers + first * k, w.least_exponent, count, k);
      for (int64_t r = row_begin; r < row_end; ++r) {
        const float* row = x.numbers + r * k;
        if (lanes) panel.set_row(row, x.least_exponent);
        // A piece joins the promoted sum of its slice, a finished slice those before it.
        float before[kLanes] = {}, slice[kLanes] = {};
        int64_t done = 0;
        const auto close_slice = [&] {
          for (int64_t c = 0; c < count; ++c) before[c] = done == 0 ? slice[c] : before[c] + slice[c];
          ++done;
        };
        for (size_t p = 0; p < pieces.size(); ++p) {
          float sum[kLanes] = {};
          sum_piece(pieces[p], row, first, count, panel, sum);
          if (p > 0 && pieces[p].opens_slice) close_slice();
          for (int64_t c = 0; c < count; ++c) slice[c] = pieces[p].opens_slice ? sum[c] : slice[c] + sum[c];
        }
        close_slice();
        std::copy_n(before, count, sums + r * n + first);
      }
    }
  });
  if (!any) return;
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      if (odd_x[static_cast<size_t>(r)] || odd_w[static_cast<size_t>(c)])
        sums[r * n + c] = plain_sum(x.numbers + r * k, w.numbers + c * k, k);
    }
  }
}

}  // namespace tessera
