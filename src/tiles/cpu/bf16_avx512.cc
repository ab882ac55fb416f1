// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <immintrin.h>

#include "tiles/cpu/matrix_kernels.h"

namespace tessera {
namespace {

constexpr int kRows = kAvx512Rows;

__m512bh as_bf16(__m512i v) { return reinterpret_cast<__m512bh>(v); }

// VDPBF16PS adds two products to each lane. A group of 4 columns of 8 rows of w fills a register: lanes 2c and 2c + 1
// collect the two halves of column c's sum.
void multiply_rows(const uint16_t* x, const uint16_t* w, int64_t groups, __m512 (&out)[kRows][2]) {
  __m512 sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, x += 4 * kRows, w += 64) {
    const __m512bh w0 = as_bf16(_mm512_loadu_si512(w)), w1 = as_bf16(_mm512_loadu_si512(w + 32));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      long long four;
      __builtin_memcpy(&four, x + 4 * r, 8);
      const __m512bh a = as_bf16(_mm512_set1_epi64(four));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a, w0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a, w1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) out[r][0] = sum[r][0], out[r][1] = sum[r][1];
}

// Functions and not constants: those would be initialised on processors without these instructions too.
inline __m512i even() { return _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30); }
inline __m512i odd() { return _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31); }

}  // namespace

void multiply_bf16_avx512(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                          int64_t stride) {
  const int64_t groups = (k + 3) / 4;
  const auto* x = static_cast<const uint16_t*>(x_panels);
  __m512 sums[kRows][2];
  for (int64_t r = 0; r < rows; r += kRows, x += kRows * groups * 4) {
    multiply_rows(x, static_cast<const uint16_t*>(w_panel), groups, sums);
    const int64_t count = rows - r < kRows ? rows - r : kRows;
    for (int64_t i = 0; i < count; ++i) {
      float* to = tile + (r + i) * stride;
      const __m512 v = _mm512_add_ps(_mm512_permutex2var_ps(sums[i][0], even(), sums[i][1]),
                                     _mm512_permutex2var_ps(sums[i][0], odd(), sums[i][1]));
      _mm512_storeu_ps(to, first ? v : _mm512_add_ps(_mm512_loadu_ps(to), v));
    }
  }
}

void split_groups_avx512(const void* in, int64_t groups, void* out) {
  const auto* from = static_cast<const uint8_t*>(in);
  auto* to = static_cast<uint8_t*>(out);
  for (int64_t g = 0; g < groups; ++g, from += 128, to += 128) {
    const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi32(a, even(), b));
    _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi32(a, odd(), b));
  }
}

}  // namespace tessera
#endif
