// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)
#include <arm_neon.h>

#include "tiles/cpu/matrix_kernels.h"

namespace tessera {
namespace {

// Both add to a 2x2 block of sums the product of (2 rows of x, 8 bytes each) and (2 rows of w, 8 bytes each)
// transposed.
struct Bfmmla {
  using Number = bfloat16_t;
  using Operand = bfloat16x8_t;
  using Sums = float32x4_t;
  static Operand load(const Number* p) { return vld1q_bf16(p); }
  static Sums zero() { return vdupq_n_f32(0); }
  static Sums multiply(Sums sum, Operand a, Operand b) { return vbfmmlaq_f32(sum, a, b); }
  static Sums add(Sums a, Sums b) { return vaddq_f32(a, b); }
};
struct Smmla {
  using Number = int8_t;
  using Operand = int8x16_t;
  using Sums = int32x4_t;
  static Operand load(const Number* p) { return vld1q_s8(p); }
  static Sums zero() { return vdupq_n_s32(0); }
  static Sums multiply(Sums sum, Operand a, Operand b) { return vmmlaq_s32(sum, a, b); }
  static Sums add(Sums a, Sums b) { return vaddq_s32(a, b); }
};

constexpr int kPairs = kNeonRows / 2, kColPairs = 8;

template <class I>
void multiply_rows(const typename I::Number* x, const typename I::Number* w, int64_t groups,
                   typename I::Sums (&out)[kPairs][kColPairs]) {
  constexpr int kPair = 16 / sizeof(*x);  // numbers of two rows in a group
  typename I::Sums sum[kPairs][kColPairs];
#pragma GCC unroll 8
  for (int i = 0; i < kPairs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) sum[i][j] = I::zero();
  }
#pragma GCC unroll 2
  for (int64_t g = 0; g < groups; ++g, x += kPair * kPairs, w += kPair * kColPairs) {
    typename I::Operand a[kPairs];
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; ++i) a[i] = I::load(x + kPair * i);
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) {
      const typename I::Operand b = I::load(w + kPair * j);
#pragma GCC unroll 8
      for (int i = 0; i < kPairs; ++i) sum[i][j] = I::multiply(sum[i][j], a[i], b);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPairs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kColPairs; ++j) out[i][j] = sum[i][j];
  }
}

// Four columns of a row from two neighbouring blocks.
template <class Sums>
Sums columns(const Sums* blocks, bool odd_row) {
  const int64x2_t a = reinterpret_cast<int64x2_t>(blocks[0]), b = reinterpret_cast<int64x2_t>(blocks[1]);
  return reinterpret_cast<Sums>(odd_row ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
}

template <class I>
void multiply(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
              int64_t stride) {
  using Number = typename I::Number;
  using Sums = typename I::Sums;
  constexpr int64_t kGroup = 8 / sizeof(Number);
  const int64_t groups = (k + kGroup - 1) / kGroup;
  const auto* x = static_cast<const Number*>(x_panels);
  Sums sums[kPairs][kColPairs];
  for (int64_t r = 0; r < rows; r += kNeonRows, x += kNeonRows * groups * kGroup) {
    multiply_rows<I>(x, static_cast<const Number*>(w_panel), groups, sums);
    const int64_t count = rows - r < kNeonRows ? rows - r : kNeonRows;
    for (int64_t i = 0; i < count; ++i) {
      for (int j = 0; j < kColPairs; j += 2) {
        float* to = tile + (r + i) * stride + 2 * j;
        Sums v = columns(&sums[i / 2][j], i % 2 != 0), before;
        if (!first) {
          __builtin_memcpy(&before, to, sizeof(before));
          v = I::add(before, v);
        }
        __builtin_memcpy(to, &v, sizeof(v));
      }
    }
  }
}

}  // namespace

void multiply_bf16_neon(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                        int64_t stride) {
  multiply<Bfmmla>(x_panels, w_panel, rows, k, first, tile, stride);
}
void multiply_int8_neon(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                        int64_t stride) {
  multiply<Smmla>(x_panels, w_panel, rows, k, first, tile, stride);
}

}  // namespace tessera
#endif
