// SPDX-License-Identifier: Apache-2.0
// The fp32 product that CPU matmul and attention share: a tile of 16 columns is the sum over k of outer products of
// packed columns.
//   x panel: panel_rows() rows, column by column: p[k * panel_rows() + r]       (rows beyond the last hold zeros)
//   w panel: 16 rows of w, column by column: p[k * 16 + c]                      (Layout::kPanels16)
// Every sum runs over k in order with one rounding per step (FMA; two on x86 without it), whatever the shape of the
// block: results do not depend on how the work is cut.
#pragma once

#include <cstdint>

#include "tiles/cpu/product.h"
#include "types/element.h"

namespace tessera {

// Rows of an x panel on this machine: what its registers hold beside 16 columns of w.
int64_t panel_rows();
// Floats that panels of `rows` rows over k columns take, with what the kernel may read beyond the end.
int64_t x_panels_floats(int64_t rows, int64_t k);

// Packs rows [0, rows) of x: row r begins at element first + r * row_stride. `scratch`: panel_rows() * k floats.
void pack_x(Element element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k, float* scratch,
            float* panels);
// The transpose, x[r][i] = v[i][r]: row i of v (of k) begins at element first + i * row_stride. `scratch`: rows floats.
void pack_x_transposed(Element element, const void* v, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                       float* scratch, float* panels);
// Packs up to 16 rows of w; row c begins at element offsets[c]. Missing rows become zeros. `scratch`: 16 * k floats.
void pack_w(Element element, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
            float* panel);

// tile[r][c] = (first ? 0 : tile[r][c]) + sum_k x[r][k] * w[k][c], rows [0, rows), 16 columns, rows of the tile
// `stride` floats apart.
void multiply_panel(const float* x_panels, const float* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                    int64_t stride);

// From groups of 4 columns to columns, 16 rows of 32-bit numbers: out[(4 * g + i) * 16 + r] = in[64 * g + 4 * r + i].
void groups_to_columns(const float* in, int64_t groups, float* out);

}  // namespace tessera
