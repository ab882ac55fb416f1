// SPDX-License-Identifier: Apache-2.0
// Results of streaming attention (stream.cuh) go from registers to memory: the four threads of a quad hold pairs
// of columns of one row; they exchange them, so that each has eight columns in a row: 16 bytes at a time.
#pragma once

#include "tiles/sm90/stream_softmax.cuh"

namespace tessera::sm90 {

constexpr int kMergeBarrier = 6;  // named: both warpgroups of a split tile

// Thread q of a quad gives word i to thread i and gets its own q-th words: w[i] becomes thread i's w[q].
__device__ __forceinline__ void exchange_in_quad(uint32_t (&w)[4]) {
  const int q = threadIdx.x % 4;
  const bool odd = q & 1, high = q & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {  // blocks of 1 x 1, between neighbours
    const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
    w[i] = odd ? got : w[i];
    w[i + 1] = odd ? w[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // blocks of 2 x 2
    const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + 2], 2);
    w[i] = high ? got : w[i];
    w[i + 2] = high ? w[i + 2] : got;
  }
}

// Columns kFrom ... kTo of 64 rows, divided by their sums. `row`: of the tile, the first.
template <class C, int kFrom, int kTo>
__device__ __forceinline__ void store_stream_rows(const StreamParams& p, const StreamTile& t, int row,
                                                  const float (&o)[C::kHead / 2], const StreamRows& r) {
  const float v_scale = C::kFp8 && p.v_scale != nullptr ? *p.v_scale : 1.0f,
              to_code = cuda::inverse_scale_of(p.y) * v_scale;
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = cuda::sum_across_quad(r.sum[h]);
    const float factor = sum == 0.0f ? 0.0f : to_code / sum;  // no key at all: 0
    const int own = row + result_row(threadIdx.x % kWarpgroup) + 8 * h;
    const int token = t.token + (own >> p.pack_shift), head = t.head + (own & ((1 << p.pack_shift) - 1));
    const int64_t at = ((int64_t{t.batch} * p.queries + token) * p.heads + head) * p.value_size;
#pragma unroll
    for (int j = kFrom / 8; j < kTo / 8; j += 4) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float low = o[4 * (j + i) + 2 * h] * factor, high = o[4 * (j + i) + 2 * h + 1] * factor;
        w[i] = p.y.element == Element::e4m3  ? cuda::encode_e4m3_pair(low, high)
               : p.y.element == Element::f16 ? cuda::pack_pair<__half>(low, high)
                                             : cuda::pack_pair<__nv_bfloat16>(low, high);
      }
      exchange_in_quad(w);
      const int col = 8 * (j + quad);
      if (token >= p.queries || col >= p.value_size) continue;
      if (p.y.element == Element::e4m3) {
        *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.y.data) + at + col) = {w[0] | w[1] << 16, w[2] | w[3] << 16};
      } else {
        *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.y.data) + at + col) = {w[0], w[1], w[2], w[3]};
      }
    }
  }
}

// Both warpgroups have the same rows, of different keys: each finishes one half of the columns with what the other has
// of them. Thread i of one holds what thread i of the other holds, so the exchange through shared memory needs no
// layout: word k of all threads, then word k + 1.
template <class C, int kHalf>
__device__ __forceinline__ void merge_and_store(const StreamParams& p, const StreamTile& t, uint32_t shared,
                                                float (&o)[C::kHead / 2], StreamRows& r) {
  constexpr int kCount = C::kHead / 4;  // words of half the columns
  static_assert(C::kHead % 64 == 0);
  const uint32_t thread = threadIdx.x % kWarpgroup * 4;
  const auto place = [&](int half, int word) {
    return shared + thread + (half * (kCount + 4) + word) * (kWarpgroup * 4);
  };
  sync_threads(kMergeBarrier, 2 * kWarpgroup);  // no thread reads keys or values any more
#pragma unroll
  for (int i = 0; i < kCount; ++i) cuda::store_shared(place(kHalf, i), o[(1 - kHalf) * kCount + i]);
#pragma unroll
  for (int h = 0; h < 2; ++h)
    cuda::store_shared(place(kHalf, kCount + 2 * h), r.top[h]),
        cuda::store_shared(place(kHalf, kCount + 2 * h + 1), r.sum[h]);
  sync_threads(kMergeBarrier, 2 * kWarpgroup);
  float mine[2], other[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float top = cuda::load_shared_float(place(1 - kHalf, kCount + 2 * h)),
                sum = cuda::load_shared_float(place(1 - kHalf, kCount + 2 * h + 1));
    const float both = fmaxf(top, r.top[h]), base = both == -INFINITY ? 0.0f : both;
    mine[h] = shrink_to(p, r.top[h], base), other[h] = shrink_to(p, top, base);
    r.sum[h] = r.sum[h] * mine[h] + sum * other[h];
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float& v = o[kHalf * kCount + i];
    v = v * mine[i / 2 % 2] + cuda::load_shared_float(place(1 - kHalf, i)) * other[i / 2 % 2];
  }
  store_stream_rows<C, kHalf * C::kHead / 2, (kHalf + 1) * C::kHead / 2>(p, t, 0, o, r);
}

}  // namespace tessera::sm90
