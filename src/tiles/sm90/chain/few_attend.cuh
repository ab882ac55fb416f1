// SPDX-License-Identifier: Apache-2.0
// Attention of few queries on Hopper, as a phase of a chain (chain.cuh) and by itself (ops/attention/sm90_few.cu):
// eight blocks take one head, each a slice of the keys (few_keys.h). Keys and values lie in stages of a ring, 64 keys x
// 128 bytes each, keys first. A warp makes the scores of 16 of each 64 keys, then, with the weights of all, a quarter
// of the columns. Slices meet as those of a matmul do: each block finishes its share of the columns, slice 0 first.
// Products are mma.sync on 16 queries, so that one head fills a tile.
#pragma once

#include "archs/cuda/instructions.cuh"
#include "archs/planted_fault.h"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/swizzle.h"
#include "tiles/cuda/elements.cuh"
#include "tiles/sm90/chain/chain_shape.h"
#include "tiles/valid_keys.h"
#include "types/element.h"

namespace tessera::sm90 {

// Which keys and values an earlier phase of the same chain writes: those are loaded when it has ended.
enum class FewWritten : int { kNone, kFresh, kAll };

struct FewParams {
  int queries, keys, heads, heads_per_kv, head_size;
  bool causal;
  bool half_is_bf16;
  FewWritten written;
  float scale;             // of the scores, to units of log2
  const int32_t* lengths;  // null: all keys are valid
  int length_stride, fresh;
  const void *k_data, *v_data;  // what their tensor maps begin with
  int64_t k_bytes, v_bytes;     // that they reach from there
  void* y;                      // [batch, queries, heads, head_size]
  Element y_element;
  const float* y_scale;  // null: 1

  __device__ __forceinline__ ValidKeys<int> valid(int batch) const {
    if (lengths == nullptr) return all_keys(keys);
    return valid_keys(lengths[planted(Fault::kLengthOfFirst) ? 0 : batch * length_stride], keys, fresh);
  }
};

// Shared memory of the block, as addresses; the ring's stages are asked for by number.
struct FewPlace {
  uint32_t queries, weights;  // of all tiles of rows
  uint32_t tops, totals;      // [4 warps][64 rows]
};

template <class Half, int kTiles>
struct FewAttention {
  static constexpr int kColumnTiles = kMostFewHead / 4 / 8;  // of eight columns, of a warp
  const FewParams& p;
  const FewPlace& place;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  FewSlice slice;
  ValidKeys<int> keys;
  float top[kTiles][2], total[kTiles][2];  // rows lane / 4 and that + 8 of each tile
  float o[kTiles][kColumnTiles][4];

  __device__ __forceinline__ FewAttention(const FewParams& params, const FewPlace& at) : p(params), place(at) {}

  __device__ __forceinline__ int column_tiles() const { return p.head_size / 32; }

  // Scores of this warp's keys; ring(): the address of the next stage, full; done(): it has been read by this warp.
  template <class Ring, class Done>
  __device__ __forceinline__ void score(Ring ring, Done done, float (&s)[kTiles][kFewGroups][2][4]) const {
#pragma unroll
    for (int g = 0; g < kFewGroups; ++g) {
#pragma unroll
      for (int t = 0; t < kTiles * 8; ++t) s[t / 8][g][t / 4 % 2][t % 4] = 0.0f;
      if (g >= slice.groups()) continue;
      for (int chunk = 0; chunk < p.head_size / 64; ++chunk) {
        const uint32_t stage = ring();
        const int key = warp * 16 + lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          uint32_t b[4];
          cuda::load_matrices(b, stage + swizzled_offset(key, k * 32 + lane / 8 % 2 * 16));
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
            uint32_t a[4];
            cuda::load_matrices(a, place.queries + (t * p.head_size / 64 + chunk) * kFewRows * 128 +
                                       swizzled_offset(lane % 16, k * 32 + lane / 16 * 16));
            cuda::multiply_add<Half>(s[t][g][0], a, b[0], b[1]);
            cuda::multiply_add<Half>(s[t][g][1], a, b[2], b[3]);
          }
        }
        done();
      }
    }
  }

  // Weights of the slice's keys to shared memory, tops and totals of its rows. sync(): of the four warps.
  template <class Sync>
  __device__ __forceinline__ void weigh(Sync sync, float (&s)[kTiles][kFewGroups][2][4]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = t * kFewRows + lane / 4 + h * 8;
        const int seen = min(slice.end, keys.seen_by(row, p.queries, p.causal));
        float most = -INFINITY;
#pragma unroll
        for (int g = 0; g < kFewGroups; ++g) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = slice.begin + g * kFewGroup + warp * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
            float& v = s[t][g][i / 2][h * 2 + i % 2];
            if (key >= seen) v = -INFINITY;
            most = fmaxf(most, v);
          }
        }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        if (lane % 4 == 0) cuda::store_shared(place.tops + (warp * kMostFewQueries + row) * 4, most * p.scale);
      }
    }
    sync();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = t * kFewRows + lane / 4 + h * 8;
        float most = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int w = 0; w < 4; ++w)
          most = fmaxf(most, cuda::load_shared_float(place.tops + (w * kMostFewQueries + row) * 4));
        top[t][h] = most;
        const float base = most == -INFINITY ? 0.0f : most;
#pragma unroll
        for (int g = 0; g < kFewGroups; ++g) {
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const float first = cuda::exp2_fast(fmaf(s[t][g][n][h * 2], p.scale, -base)),
                        second = cuda::exp2_fast(fmaf(s[t][g][n][h * 2 + 1], p.scale, -base));
            sum += first + second;
            const uint32_t at =
                place.weights + row * kFewWeightsRow + (g * kFewGroup + warp * 16 + n * 8 + lane % 4 * 2) * 2;
            const uint32_t pair = cuda::pack_pair<Half>(first, second);
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pair) : "memory");
          }
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0) cuda::store_shared(place.totals + (warp * kMostFewQueries + row) * 4, sum);
      }
    }
    sync();
#pragma unroll
    for (int t = 0; t < kTiles * 2; ++t) {
      const int row = t / 2 * kFewRows + lane / 4 + t % 2 * 8;
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < 4; ++w) sum += cuda::load_shared_float(place.totals + (w * kMostFewQueries + row) * 4);
      total[t / 2][t % 2] = sum;
    }
  }

  // Of 16 keys from `first` on, those that do not exist: 0 * NaN is NaN.
  __device__ __forceinline__ void clear_missing(uint32_t (&b)[4], int first) const {
    if (first + kFewProduct <= slice.end || planted(Fault::kStaleValues)) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first + i % 2 * 8 + lane % 4 * 2;
      b[i] &= (key < slice.end ? 0xffffu : 0u) | (key + 1 < slice.end ? 0xffff0000u : 0u);
    }
  }

  // The weights with the values. The warp has a quarter of the columns, all in one chunk of 64.
  template <class Ring, class Done>
  __device__ __forceinline__ void multiply(Ring ring, Done done) {
#pragma unroll
    for (int i = 0; i < kTiles * kColumnTiles * 4; ++i) o[i / 4 / kColumnTiles][i / 4 % kColumnTiles][i % 4] = 0.0f;
    const int column = warp * p.head_size / 4;
    for (int g = 0; g < slice.groups(); ++g) {
      for (int chunk = 0; chunk < p.head_size / 64; ++chunk) {
        if (chunk == column / 64) {
          const uint32_t stage = ring(true);
          const int count = min(kFewGroup, slice.end - slice.begin - g * kFewGroup);
          for (int k = 0; k < count; k += kFewProduct) {
            uint32_t a[kTiles][4];
#pragma unroll
            for (int t = 0; t < kTiles; ++t)
              cuda::load_matrices(a[t], place.weights + (t * kFewRows + lane % 16) * kFewWeightsRow +
                                            (g * kFewGroup + k) * 2 + lane / 16 * 16);
            multiply_keys(stage, k, slice.begin + g * kFewGroup + k, column % 64, a);
          }
        } else {
          ring(false);
        }
        done();
      }
    }
  }

  __device__ __forceinline__ void multiply_keys(uint32_t stage, int k, int key, int column,
                                                const uint32_t (&a)[kTiles][4]) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      if (n >= column_tiles()) break;
      uint32_t b[4];
      cuda::load_matrices_transposed(b, stage + swizzled_offset(k + lane % 16, (column + n * 8) * 2 + lane / 16 * 16));
      clear_missing(b, key);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        cuda::multiply_add<Half>(o[t][n], a[t], b[0], b[1]);
        cuda::multiply_add<Half>(o[t][n + 1], a[t], b[2], b[3]);
      }
    }
  }

  // Results of a tile of rows, as others read them: for each of the eight blocks its share of the columns, row by row;
  // then tops and totals of the rows.
  __device__ __forceinline__ void leave(uint8_t* to, int tile) const {
    const int share = few_share(p.head_size), sent = few_sent_bytes(p.head_size);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t != tile) continue;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        if (n >= column_tiles()) break;
        const int column = warp * p.head_size / 4 + n * 8 + lane % 4 * 2;
        uint8_t* at = to + column / share * sent + (lane / 4 * share + column % share) * 4;
        *reinterpret_cast<float2*>(at) = {o[t][n][0], o[t][n][1]};
        *reinterpret_cast<float2*>(at + 8 * share * 4) = {o[t][n][2], o[t][n][3]};
      }
      if (lane % 4 != 0) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // each warp for two blocks, both rows
        const int block = warp * 2 + i / 2, row = lane / 4 + i % 2 * 8;
        *reinterpret_cast<float2*>(to + block * sent + kFewRows * share * 4 + row * 8) = {top[t][i % 2],
                                                                                          total[t][i % 2]};
      }
    }
  }

  // A share of the columns of 16 rows. from(slice): what that one has of them; kFar: in device memory, where other SMs
  // wrote it.
  template <bool kFar, class From>
  __device__ __forceinline__ void finish(From from, int batch, int head, int tile, int of_columns) const {
    const int share = few_share(p.head_size), row = static_cast<int>(threadIdx.x) / 8, own = share / 8,
              column = static_cast<int>(threadIdx.x) % 8 * own;
    const int query = tile * kFewRows + row;
    float2 rows[kFewSlices];
    float4 part[kFewSlices];
    float most = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int s = 0; s < kFewSlices; ++s) {
      const uint8_t* at = from(s);
      rows[s] = load<kFar, float2>(at + kFewRows * share * 4 + row * 8);
      part[s] = load_share<kFar>(at + (row * share + column) * 4, own);
      most = fmaxf(most, rows[s].x);
    }
    const float base = most == -INFINITY ? 0.0f : most;
    float4 all{0, 0, 0, 0};
#pragma unroll
    for (int s = 0; s < kFewSlices; ++s) {
      if (planted(Fault::kKeySliceMissing) && s == kFewSlices - 1) continue;
      const float factor = cuda::exp2_fast(rows[s].x - base);
      sum = fmaf(rows[s].y, factor, sum);
      all.x = fmaf(part[s].x, factor, all.x), all.y = fmaf(part[s].y, factor, all.y);
      all.z = fmaf(part[s].z, factor, all.z), all.w = fmaf(part[s].w, factor, all.w);
    }
    if (query >= p.queries) return;
    const float to_code = p.y_scale != nullptr ? 1.0f / *p.y_scale : 1.0f, factor = sum == 0.0f ? 0.0f : to_code / sum;
    const float v[4] = {all.x * factor, all.y * factor, all.z * factor, all.w * factor};
    const int64_t at =
        ((int64_t{batch} * p.queries + query) * p.heads + head) * p.head_size + of_columns * share + column;
    store(at, own, v);
  }

 private:
  template <bool kFar, class Numbers>
  static __device__ __forceinline__ Numbers load(const uint8_t* at) {
    const auto* from = reinterpret_cast<const Numbers*>(at);
    if constexpr (kFar) {
      return __ldcg(from);
    } else {
      return *from;
    }
  }
  template <bool kFar>
  static __device__ __forceinline__ float4 load_share(const uint8_t* at, int own) {
    if (own == 4) return load<kFar, float4>(at);
    if (own == 2) {
      const auto pair = load<kFar, float2>(at);
      return {pair.x, pair.y, 0, 0};
    }
    return {load<kFar, float>(at), 0, 0, 0};
  }

  __device__ __forceinline__ void store(int64_t at, int own, const float (&v)[4]) const {
    if (p.y_element == Element::e4m3) {
      const uint32_t codes = pack_e4m3(v[0], v[1], v[2], v[3]);
      uint8_t* y = static_cast<uint8_t*>(p.y) + at;
      if (own == 4)
        *reinterpret_cast<uint32_t*>(y) = codes;
      else if (own == 2)
        *reinterpret_cast<uint16_t*>(y) = static_cast<uint16_t>(codes);
      else
        *y = static_cast<uint8_t>(codes);
      return;
    }
    const auto pack = [&](float a, float b) {
      return p.y_element == Element::f16 ? cuda::pack_pair<__half>(a, b) : cuda::pack_pair<__nv_bfloat16>(a, b);
    };
    uint16_t* y = static_cast<uint16_t*>(p.y) + at;
    if (own == 4)
      *reinterpret_cast<uint2*>(y) = {pack(v[0], v[1]), pack(v[2], v[3])};
    else if (own == 2)
      *reinterpret_cast<uint32_t*>(y) = pack(v[0], v[1]);
    else
      *y = static_cast<uint16_t>(pack(v[0], 0.0f));
  }
};

}  // namespace tessera::sm90
