// SPDX-License-Identifier: Apache-2.0
// The instruction-specific parts of int8 products, as in tiles/cpu_bf16_kernels.h.
//   groups of 8: x panel [k / 8][rows][8], w panel [k / 8][16][8] (Layout::kPanels16x8)
//   tiles:       x panel [k / 64][16 rows][64], w panel [k / 64][16 fours of k][16][4]
#pragma once

#include <cstdint>

namespace tessera {

constexpr int64_t kNeonInt8Rows = 6;  // registers as for BFMMLA
constexpr int64_t kPlainInt8Rows = 4;

void multiply_int8_neon(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride);
void multiply_int8_amx(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride);
// Any processor: x panel [rows][k / 8][8] in int16, w panel as stored.
void multiply_int8_plain(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride);

}  // namespace tessera
