// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <immintrin.h>

#include "tiles/cpu/matrix_kernels.h"

namespace tessera {
namespace {

constexpr int kRows = kAvx512Rows;

// VPDPBUSD adds four products of u8 and i8 to each lane. A group of 8 columns of 8 rows of w fills a register: lanes 2c
// and 2c + 1 collect the two halves of column c's sum. Sums wrap, so only the final one must fit an int32.
void multiply_rows(const uint8_t* x, const int8_t* w, int64_t groups, __m512i (&out)[kRows][2]) {
  __m512i sum[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_si512();
  for (int64_t g = 0; g < groups; ++g, x += 8 * kRows, w += 128) {
    const __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 64);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      long long eight;
      __builtin_memcpy(&eight, x + 8 * r, 8);
      const __m512i a = _mm512_set1_epi64(eight);
      sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], a, w0);
      sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], a, w1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) out[r][0] = sum[r][0], out[r][1] = sum[r][1];
}

// Both halves of 16 columns, added.
__m512i join(__m512i a, __m512i b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
}

// 128 times the sum of each column of w: what x + 128 gives too much.
__m512i excess(const int8_t* w, int64_t groups) {
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int64_t g = 0; g < groups; ++g, w += 128) {
    sum[0] = _mm512_dpbusd_epi32(sum[0], offset, _mm512_loadu_si512(w));
    sum[1] = _mm512_dpbusd_epi32(sum[1], offset, _mm512_loadu_si512(w + 64));
  }
  return join(sum[0], sum[1]);
}

}  // namespace

void multiply_int8_vnni(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                        int64_t stride) {
  const int64_t groups = (k + 7) / 8;
  const auto* x = static_cast<const uint8_t*>(x_panels);
  const auto* w = static_cast<const int8_t*>(w_panel);
  const __m512i too_much = excess(w, groups);
  __m512i sums[kRows][2];
  for (int64_t r = 0; r < rows; r += kRows, x += kRows * groups * 8) {
    multiply_rows(x, w, groups, sums);
    const int64_t count = rows - r < kRows ? rows - r : kRows;
    for (int64_t i = 0; i < count; ++i) {
      float* to = tile + (r + i) * stride;
      const __m512i v = _mm512_sub_epi32(join(sums[i][0], sums[i][1]), too_much);
      _mm512_storeu_si512(to, first ? v : _mm512_add_epi32(_mm512_loadu_si512(to), v));
    }
  }
}

}  // namespace tessera
#endif
