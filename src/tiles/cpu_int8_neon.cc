// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)
#include <arm_neon.h>

#include "tiles/cpu_int8_kernels.h"

namespace tessera {
namespace {

constexpr int kPairs = kNeonInt8Rows / 2, kColPairs = 8;

// SMMLA: a 2x2 block of sums += (2 rows of x, 8 columns) times (2 rows of w, 8 columns) transposed.
void multiply_rows(const int8_t* x, const int8_t* w, int64_t groups, int32x4_t (&out)[kPairs][kColPairs]) {
  int32x4_t sum[kPairs][kColPairs];
#pragma GCC unroll 8
  for (int i = 0; i < kPairs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) sum[i][j] = vdupq_n_s32(0);
  }
#pragma GCC unroll 2
  for (int64_t g = 0; g < groups; ++g, x += 16 * kPairs, w += 16 * kColPairs) {
    int8x16_t a[kPairs];
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; ++i) a[i] = vld1q_s8(x + 16 * i);
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) {
      const int8x16_t b = vld1q_s8(w + 16 * j);
#pragma GCC unroll 8
      for (int i = 0; i < kPairs; ++i) sum[i][j] = vmmlaq_s32(sum[i][j], a[i], b);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPairs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) out[i][j] = sum[i][j];
  }
}

// Columns 2j ... 2j + 3 of a row from two neighbouring blocks.
int32x4_t columns(const int32x4_t* blocks, int odd_row) {
  const int64x2_t a = vreinterpretq_s64_s32(blocks[0]), b = vreinterpretq_s64_s32(blocks[1]);
  return vreinterpretq_s32_s64(odd_row != 0 ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
}

}  // namespace

void multiply_int8_neon(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride) {
  const int64_t groups = (k + 7) / 8;
  const auto* x = static_cast<const int8_t*>(x_panels);
  auto* sums_out = reinterpret_cast<int32_t*>(tile);
  int32x4_t sums[kPairs][kColPairs];
  for (int64_t r = 0; r < rows; r += kNeonInt8Rows, x += kNeonInt8Rows * groups * 8) {
    multiply_rows(x, static_cast<const int8_t*>(w_panel), groups, sums);
    const int64_t count = rows - r < kNeonInt8Rows ? rows - r : kNeonInt8Rows;
    for (int64_t i = 0; i < count; ++i) {
      int32_t* to = sums_out + (r + i) * stride;
      for (int j = 0; j < kColPairs; j += 2) {
        const int32x4_t v = columns(&sums[i / 2][j], static_cast<int>(i % 2));
        vst1q_s32(to + 2 * j, first ? v : vaddq_s32(vld1q_s32(to + 2 * j), v));
      }
    }
  }
}

}  // namespace tessera
#endif
