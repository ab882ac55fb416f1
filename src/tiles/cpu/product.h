// SPDX-License-Identifier: Apache-2.0
// PanelProduct: one way in which this machine multiplies packed panels. CPU kernels name the arithmetic (fp32, bf16)
// and get the best that the processor has for it; a kernel is written once for all of them.
//   tile[r][c] = (first ? 0 : tile[r][c]) + sum_k x[r][k] * w[c][k]
// for rows [0, rows) and 16 columns; rows of the tile are `stride` floats apart.
// x panels hold `rows` rows of x, a w panel holds 16 rows of w, in groups of `depth` columns; rows and columns beyond
// the last hold zeros. The order inside a panel is the product's own.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "types/element.h"
#include "types/layout.h"

namespace tessera {

constexpr int64_t kPanelCols = 16;

struct PanelProduct {
  const char* instruction;  // as people know it: "BFMMLA"
  Layout layout;            // in which a constant w is best stored
  int64_t rows;             // of an x panel
  int64_t depth;
  int64_t bytes;         // of a packed number
  bool integer = false;  // the tile holds int32 sums
  int64_t block_k;  // columns to multiply at a time: a w panel is 24 KiB, which leaves half of a 64 KiB first-level
                    // cache; a multiple of depth

  // Packs rows [0, rows) of x: row r begins at element first + r * row_stride. `scratch`: this->rows * round_up(k, 8)
  // floats.
  void (*pack_x)(Element element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                 float* scratch, void* panels);
  // The transpose, x[r][i] = v[i][r]: row i of v (of k) begins at element first + i * row_stride. `scratch`: 6 * rows
  // floats.
  void (*pack_x_transposed)(Element element, const void* v, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                            float* scratch, void* panels);
  // Packs up to 16 rows of w; row c begins at element offsets[c]. `scratch`: 16 * round_up(k, 8) floats.
  void (*pack_w)(Element element, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
                 void* panel);
  // k columns of a panel of w stored in `layout`, from element `first` on: where they lie, or unpacked into `panel`.
  const void* (*take_w)(Element element, const void* w, int64_t first, int64_t k, void* panel);
  // w[c][i] = s[i][c] for k rows of 16 f32, rounded to the numbers that this product multiplies: s itself, or packed
  // into `panel`.
  const void* (*round_w)(const float* s, int64_t k, void* panel);
  void (*multiply)(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                   int64_t stride);

  int64_t x_bytes(int64_t x_rows, int64_t k) const { return round_up(x_rows, rows) * round_up(k, depth) * bytes + 64; }
  int64_t w_bytes(int64_t k) const { return kPanelCols * round_up(k, depth) * bytes; }
};

// fp32 products and sums (FMA; two roundings on x86 without it), over k in order: results do not depend on how the work
// is cut.
const PanelProduct& fp32_product();
// Products of numbers that bf16 holds exactly (is_exact_in_bf16), summed in fp32: each step adds two or four products
// with roundings of up to one unit of fp32 (23 bits), subnormals may count as zero. Without such instructions:
// fp32_product's arithmetic on the same numbers.
const PanelProduct& bf16_product();
// Exact products and int32 sums of int8 numbers (SMMLA, AMX, VPDPBUSD; else in 16 bits). Contract: k * 128 * 128 <
// 2^31. No transposed x, no rounding of w.
const PanelProduct& int8_product();
std::span<const PanelProduct> int8_products();
// Every product for bf16 that this machine can run, best first; the last needs no special instructions.
std::span<const PanelProduct> bf16_products();

}  // namespace tessera
