// SPDX-License-Identifier: Apache-2.0
#include "op/f64_product.h"

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "base/parallel.h"

namespace tessera {
namespace {

// 4 x 4 sums: 8 registers of two doubles, and 8 more for operands on machines with 16.
constexpr int64_t kRows = 4, kCols = 4;
// 4 columns x 512 steps of w and as much of x: 32 KiB, inside every L1.
constexpr int64_t kDepth = 512;

// Columns n0 .. n0 + 3 of the product's right side, k by k; missing ones are zero.
void pack(const double* w, int64_t n0, int64_t n, int64_t k, double* panel) {
  for (int64_t c = 0; c < kCols; ++c) {
    const bool there = n0 + c < n;
    const double* row = there ? w + (n0 + c) * k : nullptr;
    for (int64_t i = 0; i < k; ++i) panel[i * kCols + c] = there ? row[i] : 0.0;
  }
}

// sums += x * panel over `depth` steps. x: kRows pointers.
void add_products(const double* const* x, const double* panel, int64_t depth, double* sums) {
  double s[kRows * kCols];
  for (int64_t i = 0; i < kRows * kCols; ++i) s[i] = sums[i];
  const double *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
  for (int64_t k = 0; k < depth; ++k) {
    const double* p = panel + k * kCols;
    for (int64_t c = 0; c < kCols; ++c) {
      s[c] += x0[k] * p[c];
      s[kCols + c] += x1[k] * p[c];
      s[2 * kCols + c] += x2[k] * p[c];
      s[3 * kCols + c] += x3[k] * p[c];
    }
  }
  for (int64_t i = 0; i < kRows * kCols; ++i) sums[i] = s[i];
}

}  // namespace

void f64_product(const double* x, const double* w, double* y, int64_t m, int64_t n, int64_t k) {
  std::fill(y, y + m * n, 0.0);
  if (m == 0 || n == 0 || k == 0) return;
  const int64_t panels = divide_up(n, kCols), bands = divide_up(m, kRows);
  std::vector<double> packed(static_cast<size_t>(panels * kCols * k));
  parallel_for(panels, 16, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) pack(w, p * kCols, n, k, packed.data() + p * kCols * k);
  });
  // A piece: up to 16 bands of rows, against all panels. Small products are split along n too, so that every thread has
  // work.
  const int64_t band_group = std::min<int64_t>(16, bands),
                panel_group = std::max<int64_t>(1, std::min<int64_t>(64, panels));
  const int64_t across = divide_up(panels, panel_group);
  parallel_for(divide_up(bands, band_group) * across, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first_band = piece / across * band_group, first_panel = piece % across * panel_group;
      const int64_t last_band = std::min(bands, first_band + band_group),
                    last_panel = std::min(panels, first_panel + panel_group);
      for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
        const int64_t depth = std::min(kDepth, k - k0);
        for (int64_t p = first_panel; p < last_panel; ++p) {
          const double* panel = packed.data() + (p * k + k0) * kCols;
          const int64_t cols = std::min(kCols, n - p * kCols);
          for (int64_t b = first_band; b < last_band; ++b) {
            const int64_t rows = std::min(kRows, m - b * kRows);
            const double* lines[kRows];
            for (int64_t r = 0; r < kRows; ++r) lines[r] = x + (b * kRows + std::min(r, rows - 1)) * k + k0;
            double sums[kRows * kCols] = {};
            double* corner = y + b * kRows * n + p * kCols;
            for (int64_t r = 0; r < rows; ++r) std::copy_n(corner + r * n, cols, sums + r * kCols);
            add_products(lines, panel, depth, sums);
            for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * kCols, cols, corner + r * n);
          }
        }
      }
    }
  });
}

}  // namespace tessera
