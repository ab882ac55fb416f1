// SPDX-License-Identifier: Apache-2.0
// The instruction-specific parts of bf16 and int8 products. Each file is compiled with its instruction set switched on
// (cmake/compiler.cmake), and may be called only where archs/cpu/features.h says that the processor has it. A group is
// 8 bytes along k: 4 columns of bf16, 8 of int8; a tile of AMX is 64 bytes along k by 16 rows.
//   groups: x panel [groups][rows][8 bytes], w panel [groups][16][8 bytes] (Layout::kPanels16x4, kPanels16x8)
//   tiles:  x panel [tiles][16 rows][64 bytes], w panel [tiles][16 fours of bytes along k][16][4 bytes]
// int8 sums are int32 in the tile's place. VPDPBUSD multiplies u8 by i8: its x panel holds x + 128.
#pragma once

#include <cstdint>

namespace tessera {

// 3 x 8 accumulators of 2x2 + 3 of x + 1 of w = 28 of 32 registers; 300 of 330 GFLOP/s on Neoverse V1 in bf16.
constexpr int64_t kNeonRows = 6;
constexpr int64_t kAvx512Rows = 12;  // 12 x 2 accumulators + 2 of w + 1 of x = 27 of 32 registers
constexpr int64_t kAmxRows = 16;     // a tile

void multiply_bf16_neon(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                        int64_t stride);
void multiply_int8_neon(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                        int64_t stride);
void multiply_bf16_avx512(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                          int64_t stride);
void multiply_int8_vnni(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                        int64_t stride);
void multiply_bf16_amx(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                       int64_t stride);
void multiply_int8_amx(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                       int64_t stride);
// Groups of 8 bytes to fours: [groups][16][8 bytes] -> [2 * groups][16][4 bytes].
void split_groups_avx512(const void* in, int64_t groups, void* out);

}  // namespace tessera
