// SPDX-License-Identifier: Apache-2.0
// Results of streaming attention (stream.cuh) go from registers to memory: the four threads of a quad hold pairs
// of columns of one row; they exchange them, so that each has eight columns in a row: 16 bytes at a time.
#pragma once

#include "tiles/sm90/stream_softmax.cuh"

namespace tessera::sm90 {

constexpr int kMergeBarrier = 6,
              kHalfBarrier = 1;  // named: both warpgroups of a split tile; each of them (and the next)

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

// 32 columns of 64 rows from `first` on, divided by their sums. `row`: of the tile, the first. word(i): the i-th of the
// thread's 16 numbers, as wgmma leaves them.
template <class Word>
__device__ __forceinline__ void store_stream_columns(const StreamParams& p, const StreamTile& t, int row, int first,
                                                     const float (&factor)[2], Word word) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int own = row + result_row(threadIdx.x % kWarpgroup) + 8 * h;
    const int token = t.token + (own >> p.pack_shift), head = t.head + (own & ((1 << p.pack_shift) - 1));
    const int64_t at = ((int64_t{t.batch} * p.queries + token) * p.heads + head) * p.value_size;
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = word(4 * i + 2 * h) * factor[h], high = word(4 * i + 2 * h + 1) * factor[h];
      w[i] = p.y.element == Element::e4m3  ? cuda::encode_e4m3_pair(low, high)
             : p.y.element == Element::f16 ? cuda::pack_pair<__half>(low, high)
                                           : cuda::pack_pair<__nv_bfloat16>(low, high);
    }
    exchange_in_quad(w);
    const int col = first + 8 * (static_cast<int>(threadIdx.x) % 4);
    if (token >= p.queries || col >= p.value_size) continue;
    if (p.y.element == Element::e4m3) {
      *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.y.data) + at + col) = {w[0] | w[1] << 16, w[2] | w[3] << 16};
    } else {
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.y.data) + at + col) = {w[0], w[1], w[2], w[3]};
    }
  }
}

// What numbers of the rows are multiplied with on their way to y.
template <class C>
__device__ __forceinline__ void row_factors(const StreamParams& p, const float (&sum)[2], float (&factor)[2]) {
  const float v_scale = C::kFp8 && p.v_scale != nullptr ? *p.v_scale : 1.0f,
              to_code = cuda::inverse_scale_of(p.y) * v_scale;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float all = cuda::sum_across_quad(sum[h]);
    factor[h] = all == 0.0f ? 0.0f : to_code / all;  // no key at all: 0
  }
}

// Columns kFrom ... kTo of 64 rows.
template <class C, int kFrom, int kTo>
__device__ __forceinline__ void store_stream_rows(const StreamParams& p, const StreamTile& t, int row,
                                                  const float (&o)[C::kHead / 2], const StreamRows& r) {
  float factor[2];
  row_factors<C>(p, r.sum, factor);
#pragma unroll
  for (int col = kFrom; col < kTo; col += 32)
    store_stream_columns(p, t, row, col, factor, [&](int i) { return o[col / 2 + i]; });
}

// Where halves and slices of a split tile meet, in shared memory over everything that came before: thread i of one
// warpgroup holds what thread i of another one holds, so it needs no layout: four words of all threads, then the next
// four. Behind half the columns: top and sum of both rows. Then what other slices send: of each its share of the
// columns, and top and sum.
template <class C>
struct MergePlace {
  static constexpr int kCount = C::kHead / 4;  // words of half the columns
  static constexpr int kWordBytes = kWarpgroup * 4, kHalfBytes = (kCount + 4) * kWordBytes;
  uint32_t shared;
  __device__ uint32_t at(int half, int word) const {
    return shared + half * kHalfBytes + word * kWordBytes + threadIdx.x % kWarpgroup * 16;
  }
  // Words of the columns that a slice finishes, and bytes of what it gets from each other slice.
  static constexpr int words(int slices) { return kCount / (slices / 2); }
  static constexpr int sent_bytes(int slices) { return (words(slices) + 4) * kWordBytes; }
  static constexpr bool fits(int slices) {
    return 2 * kHalfBytes + (slices - 1) * sent_bytes(slices) + kSwizzleAtomBytes <= C::kSharedBytes;
  }
  // The first of what slice `from` has sent to slice `to`.
  __device__ uint32_t inbox(int slices, int to, int from) const {
    return shared + 2 * kHalfBytes + (from < to ? from : from - 1) * sent_bytes(slices);
  }
};
__device__ __forceinline__ float word_of(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Slices of a cluster: each finishes its share of the columns by one of its warpgroups, with what all slices have of
// them, the first slice's first. Each sends the others their shares by bulk copies: a barrier of the cluster that
// orders ordinary memory accesses takes longer than all products. Contract: the columns of half kHalf lie at place.at(1
// - kHalf, ...) in every block; the cluster has been told (arrive_cluster) that nothing else is read here.
template <class C, int kHalf, int kSlices>
__device__ __forceinline__ void merge_slices(const StreamParams& p, const StreamTile& t, const MergePlace<C>& place,
                                             uint32_t received) {
  using Place = MergePlace<C>;
  static_assert(Place::fits(kSlices));
  constexpr int kCount = Place::kCount, kPerHalf = kSlices / 2, kWords = Place::words(kSlices);
  static_assert(kWords % 16 == 0);
  const int slice = stream_slice<C>(p), thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const bool finishes = slice / kPerHalf == kHalf;
  if (finishes && thread == 0) arrive_expecting(received, (kSlices - 1) * Place::sent_bytes(kSlices));
  fence_for_tma();
  sync_threads(kHalfBarrier + kHalf, kWarpgroup);  // this half is written
  wait_cluster();                                  // nobody reads anything else where it arrives
  if (thread < kPerHalf && kHalf * kPerHalf + thread != slice) {
    const int to = kHalf * kPerHalf + thread;
    const uint32_t there = address_in(place.inbox(kSlices, to, slice), to), barrier = address_in(received, to),
                   from = place.shared + (1 - kHalf) * Place::kHalfBytes;
    send_to_block(there, from + thread * kWords * Place::kWordBytes, kWords * Place::kWordBytes, barrier);
    send_to_block(there + kWords * Place::kWordBytes, from + kCount * Place::kWordBytes, 4 * Place::kWordBytes,
                  barrier);
  }
  __syncwarp();
  if (finishes) {
    wait(received, 0);
    const uint32_t own = place.at(1 - kHalf, slice % kPerHalf * kWords), own_rows = place.at(1 - kHalf, kCount);
    const auto of_slice = [&](int s, int word) {  // word: of the share; kWords: top and sum
      return cuda::load_shared_floats(s == slice
                                          ? (word == kWords ? own_rows : own + word * Place::kWordBytes)
                                          : place.inbox(kSlices, slice, s) + word * Place::kWordBytes + thread * 16);
    };
    float factor[kSlices][2], to_y[2], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    float4 rows[kSlices];
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      rows[s] = of_slice(s, kWords);
      top[0] = fmaxf(top[0], rows[s].x), top[1] = fmaxf(top[1], rows[s].z);
    }
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        factor[s][h] = shrink_to(p, h == 0 ? rows[s].x : rows[s].z, top[h] == -INFINITY ? 0.0f : top[h]);
        sum[h] = fmaf(h == 0 ? rows[s].y : rows[s].w, factor[s][h], sum[h]);
      }
    }
    row_factors<C>(p, sum, to_y);
#pragma unroll 1
    for (int first = 0; first < kWords; first += 16) {
      float all[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) all[i] = 0;
#pragma unroll
      for (int s = 0; s < kSlices - (planted(Fault::kKeySliceMissing) ? 1 : 0); ++s) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 four = of_slice(s, first + 4 * i);
#pragma unroll
          for (int j = 0; j < 4; ++j) all[4 * i + j] = fmaf(word_of(four, j), factor[s][j / 2], all[4 * i + j]);
        }
      }
      store_stream_columns(p, t, 0, kHalf * C::kHead / 2 + (slice % kPerHalf * kWords + first) * 2, to_y,
                           [&](int i) { return all[i]; });
    }
  }
  __syncwarp();
  arrive_cluster();  // this block has what others send
  wait_cluster();
}

// Both warpgroups have the same rows, of different keys: each takes one half of the columns, with what the other has of
// them, and finishes it or hands it to the cluster.
template <class C, int kHalf>
__device__ __forceinline__ void merge_and_store(const StreamParams& p, const StreamTile& t, uint32_t shared,
                                                uint32_t received, float (&o)[C::kHead / 2], StreamRows& r) {
  using Place = MergePlace<C>;
  constexpr int kCount = Place::kCount;
  static_assert(C::kHead % 64 == 0);
  const Place place{shared};
  sync_threads(kMergeBarrier, 2 * kWarpgroup);  // no thread reads queries, keys or values any more
  if (p.slices > 1) arrive_cluster();
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float* v = &o[(1 - kHalf) * kCount + i];
    cuda::store_shared(place.at(kHalf, i), float4{v[0], v[1], v[2], v[3]});
  }
  cuda::store_shared(place.at(kHalf, kCount), float4{r.top[0], r.sum[0], r.top[1], r.sum[1]});
  sync_threads(kMergeBarrier, 2 * kWarpgroup);
  const float4 rows = cuda::load_shared_floats(place.at(1 - kHalf, kCount));
  float mine[2], other[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float top = h == 0 ? rows.x : rows.z, sum = h == 0 ? rows.y : rows.w;
    const float both = fmaxf(top, r.top[h]), base = both == -INFINITY ? 0.0f : both;
    mine[h] = shrink_to(p, r.top[h], base), other[h] = shrink_to(p, top, base);
    r.sum[h] = r.sum[h] * mine[h] + sum * other[h];
    r.top[h] = both;
  }
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 four = cuda::load_shared_floats(place.at(1 - kHalf, i));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& v = o[kHalf * kCount + i + j];
      v = v * mine[j / 2] + word_of(four, j) * other[j / 2];
    }
  }
  if (p.slices == 1) {
    store_stream_rows<C, kHalf * C::kHead / 2, (kHalf + 1) * C::kHead / 2>(p, t, 0, o, r);
    return;
  }
  // Over what only this thread has read.
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float* v = &o[kHalf * kCount + i];
    cuda::store_shared(place.at(1 - kHalf, i), float4{v[0], v[1], v[2], v[3]});
  }
  cuda::store_shared(place.at(1 - kHalf, kCount), float4{r.top[0], r.sum[0], r.top[1], r.sum[1]});
  if (p.slices == 8) {
    merge_slices<C, kHalf, 8>(p, t, place, received);
  } else if (p.slices == 4) {
    merge_slices<C, kHalf, 4>(p, t, place, received);
  } else {
    merge_slices<C, kHalf, 2>(p, t, place, received);
  }
}

}  // namespace tessera::sm90
