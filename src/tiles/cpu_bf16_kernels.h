// SPDX-License-Identifier: Apache-2.0
// The instruction-specific parts of bf16 products. Each is compiled in a file of its own with that instruction set switched on
// (cmake/compiler.cmake), and may be called only where archs/cpu/features.h says that the processor has it.
//   groups of 4: x panel [k / 4][rows][4], w panel [k / 4][16][4] (Layout::kPanels16x4)
//   tiles:       x panel [k / 32][16 rows][32], w panel [k / 32][16 pairs of k][16][2]
#pragma once

#include <cstdint>

namespace tessera {

constexpr int64_t kNeonBf16Rows = 6;     // 3 x 8 accumulators of 2x2 + 3 of x + 1 of w = 28 of 32 registers; 300 of 330 GFLOP/s on Neoverse V1
constexpr int64_t kAvx512Bf16Rows = 12;  // 12 x 2 accumulators + 2 of w + 1 of x = 27 of 32 registers
constexpr int64_t kAmxRows = 16;         // a tile

void multiply_bf16_neon(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride);
void multiply_bf16_avx512(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride);
void multiply_bf16_amx(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride);
// [k / 4][16][4] -> [k / 4 * 2][16][2]; `groups` of 4.
void pair_columns_avx512(const uint16_t* in, int64_t groups, uint16_t* out);

}  // namespace tessera
