// SPDX-License-Identifier: Apache-2.0
// The online softmax of streaming attention (stream.cuh), on scores as wgmma leaves them: a thread holds columns 8
// j + c and the next of rows r and r + 8. With
//   top = max over the keys so far,  P_j = 2^(s_j - top)        s in units of log2; with a bias P_j = 2^((s_j - top)
//   log2 e)
// a new block of keys may raise `top`; sums and results so far are then multiplied with `shrink` = 2^(old top - new
// top). FP8: the weights are rounded to e4m3(448 P_j) against the maximum so far, and the sum is that of the unrounded
// 448 P_j.
#pragma once

#include "tiles/sm90/stream.cuh"

namespace tessera::sm90 {

struct StreamRows {
  float top[2], sum[2], shrink[2];  // of rows r and r + 8; sum: of this thread's columns only
  float scale;        // of the scores, FP8's scales included: to units of log2 or, with a bias, to their own
  float score_scale;  // what is left of it once a bias is added: `scale`, or 1
};

// One number of the bias. In order, so that few are under way: registers are full of scores and results.
__device__ __forceinline__ float load_bias(const uint8_t* from, Element element) {
  if (element == Element::f32) {
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(from));
    return v;
  }
  uint16_t code;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(code) : "l"(from));
  return element == Element::f16 ? cuda::decode_half_pair(code).x : cuda::decode_bf16_pair(code).x;
}

// Scores with the bias added, in their own units: times log2 e the lowest f32 would be minus infinity. key: of the
// thread's first column. kGap: new keys read columns further on.
template <class C, bool kGap>
__device__ __forceinline__ void add_bias(const StreamParams& p, const StreamTile& t, const ValidKeys<int>& valid,
                                         int row, int key, float scale, float (&s)[C::kKeys / 2]) {
  const int bytes = p.bias_element == Element::f32 ? 4 : 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = row + 8 * h, token = t.token + (r >> p.pack_shift), head = t.head + (r & ((1 << p.pack_shift) - 1));
    const int keys = token < p.queries ? valid.all - key : 0;  // from the thread's first column on
    const uint8_t* from =
        static_cast<const uint8_t*>(p.bias) +
        (t.batch * p.bias_batch + head * p.bias_head + token * p.bias_query + key * p.bias_key) * bytes;
#pragma unroll
    for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& v = s[4 * j + 2 * h + i];
        const int column = kGap && key + 8 * j + i >= valid.old ? i + valid.gap : i;
        if (8 * j + i < keys) v = fmaf(v, scale, load_bias(from + column * p.bias_key * bytes, p.bias_element));
        if (planted(Fault::kLowestIsNone) && v < -1e38f) v = -INFINITY;
      }
      from += 8 * p.bias_key * bytes;
    }
  }
}

// row: in the tile; first_key: of the block.
template <class C>
__device__ __forceinline__ void mask_scores(const StreamParams& p, const StreamTile& t, int row, int first_key,
                                            float scale, float (&s)[C::kKeys / 2]) {
  asm volatile(""
               : "+r"(row));  // what follows from it is computed here: hoisted out of the loop over blocks it would
                              // take registers that results need
  const int col = first_key + result_col(threadIdx.x % kWarpgroup);
  const ValidKeys<int> keys = stream_keys(p, t.batch);
  if (p.bias != nullptr) {
    p.lengths == nullptr ? add_bias<C, false>(p, t, keys, row, col, scale, s)
                         : add_bias<C, true>(p, t, keys, row, col, scale, s);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int token = t.token + ((row + 8 * h) >> p.pack_shift);
    const int seen = keys.seen_by(token, p.queries, p.causal) - col;
#pragma unroll
    for (int j = 0; j < C::kKeys / 8; ++j) {
      if (8 * j >= seen) s[4 * j + 2 * h] = -INFINITY;
      if (8 * j + 1 >= seen) s[4 * j + 2 * h + 1] = -INFINITY;
    }
  }
}

// Scores of row h become weights: weigh(score). Returns their sum and `sum`.
template <class C, class Weigh>
__device__ __forceinline__ float weigh_row(float (&s)[C::kKeys / 2], int h, float sum, Weigh weigh) {
  float odd = 0;
#pragma unroll
  for (int j = 0; j < C::kKeys / 8; ++j) {
    float &x = s[4 * j + 2 * h], &y = s[4 * j + 2 * h + 1];
    x = cuda::exp2_fast(weigh(x));
    y = cuda::exp2_fast(weigh(y));
    sum += x;
    odd += y;
  }
  return sum + odd;
}

// 2^(from - to), of scores in units of log2 or, with a bias, in their own.
__device__ __forceinline__ float shrink_to(const StreamParams& p, float from, float to) {
  return cuda::exp2_fast(p.bias != nullptr ? (from - to) * static_cast<float>(kLog2e) : from - to);
}

// Scores become weights. kMasked: there may be a bias, and a row may have seen no key yet; it must not compute -inf -
// -inf.
template <class C, bool kMasked>
__device__ __forceinline__ void soften(const StreamParams& p, float (&s)[C::kKeys / 2], StreamRows& r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float a = s[2 * h], b = s[2 * h + 1];
#pragma unroll
    for (int j = 1; j < C::kKeys / 8; ++j) {
      a = fmaxf(a, s[4 * j + 2 * h]);
      b = fmaxf(b, s[4 * j + 2 * h + 1]);
    }
    const float top = fmaxf(r.top[h], cuda::max_across_quad(fmaxf(a, b)) * r.score_scale);
    float base = kMasked && top == -INFINITY ? 0.0f : top;
    r.shrink[h] = planted(Fault::kNoShrink) && r.top[h] != -INFINITY ? 1.0f
                  : kMasked                                          ? shrink_to(p, r.top[h], base)
                                                                     : cuda::exp2_fast(r.top[h] - base);
    r.top[h] = top;
    const float sum = r.sum[h] * r.shrink[h];
    if (kMasked && p.bias != nullptr) {  // the difference first: where f32 lost the scores it is exactly 0
      r.sum[h] = weigh_row<C>(s, h, sum, [&](float x) {
        return fmaf(x - base, static_cast<float>(kLog2e), C::kFp8 ? static_cast<float>(kLog2Of448) : 0.0f);
      });
    } else {
      if constexpr (C::kFp8) base -= kLog2Of448;
      r.sum[h] = weigh_row<C>(s, h, sum, [&](float x) { return fmaf(x, r.score_scale, -base); });
    }
  }
}

// Weights as operand A of the product with V: 16-bit pairs, or four e4m3 codes in the token order of
// archs/sm90/transposed_bytes.h.
template <class C>
__device__ __forceinline__ void pack_weights(uint32_t (&w)[C::kKeys * C::kBytes / 8], const float (&s)[C::kKeys / 2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if constexpr (C::kFp8) {
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; j += 2) {
        const float* x = &s[4 * j + 2 * h];
        w[j + h] = planted(Fault::kTokenOrder) ? pack_e4m3(x[0], x[4], x[1], x[5]) : pack_e4m3(x[0], x[1], x[4], x[5]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j)
        w[2 * j + h] = cuda::pack_pair<typename C::Operand>(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]);
    }
  }
}

}  // namespace tessera::sm90
