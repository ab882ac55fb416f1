// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)
#include <arm_neon.h>

#include "tiles/cpu_bf16_kernels.h"

namespace tessera {
namespace {

constexpr int kPairs = kNeonBf16Rows / 2, kColPairs = 8;

// BFMMLA: a 2x2 block of sums += (2 rows of x, 4 columns) times (2 rows of w, 4 columns) transposed.
void multiply_rows(const bfloat16_t* x, const bfloat16_t* w, int64_t groups, float32x4_t (&out)[kPairs][kColPairs]) {
  float32x4_t sum[kPairs][kColPairs];
#pragma GCC unroll 8
  for (int i = 0; i < kPairs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) sum[i][j] = vdupq_n_f32(0);
  }
#pragma GCC unroll 2
  for (int64_t g = 0; g < groups; ++g, x += 8 * kPairs, w += 8 * kColPairs) {
    bfloat16x8_t a[kPairs];
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; ++i) a[i] = vld1q_bf16(x + 8 * i);
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) {
      const bfloat16x8_t b = vld1q_bf16(w + 8 * j);
#pragma GCC unroll 8
      for (int i = 0; i < kPairs; ++i) sum[i][j] = vbfmmlaq_f32(sum[i][j], a[i], b);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPairs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) out[i][j] = sum[i][j];
  }
}

// Columns 2j ... 2j + 3 of row r from two neighbouring blocks.
float32x4_t columns(const float32x4_t* blocks, int odd_row) {
  const float64x2_t a = vreinterpretq_f64_f32(blocks[0]), b = vreinterpretq_f64_f32(blocks[1]);
  return vreinterpretq_f32_f64(odd_row != 0 ? vzip2q_f64(a, b) : vzip1q_f64(a, b));
}

}  // namespace

void multiply_bf16_neon(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride) {
  const int64_t groups = (k + 3) / 4;
  const auto* x = static_cast<const bfloat16_t*>(x_panels);
  float32x4_t sums[kPairs][kColPairs];
  for (int64_t r = 0; r < rows; r += kNeonBf16Rows, x += kNeonBf16Rows * groups * 4) {
    multiply_rows(x, static_cast<const bfloat16_t*>(w_panel), groups, sums);
    const int64_t count = rows - r < kNeonBf16Rows ? rows - r : kNeonBf16Rows;
    for (int64_t i = 0; i < count; ++i) {
      float* to = tile + (r + i) * stride;
      for (int j = 0; j < kColPairs; j += 2) {
        const float32x4_t v = columns(&sums[i / 2][j], static_cast<int>(i % 2));
        vst1q_f32(to + 2 * j, first ? v : vaddq_f32(vld1q_f32(to + 2 * j), v));
      }
    }
  }
}

}  // namespace tessera
#endif
