// SPDX-License-Identifier: Apache-2.0
// Results of short attention (sm90_short.cuh) go from registers to memory: each warp's 16 rows through shared memory of its own, then by the copy engine.
#pragma once

#include "tiles/sm90_short_products.cuh"

namespace tessera::sm90 {

// A warp's 16 rows to shared memory, in blocks of 64 channels of 16 bits (rows of 128 bytes) ...
template <class F, class Half>
__device__ __forceinline__ void stage_halves(const ShortSums<F>& sums, const float (&factor)[2], uint32_t to) {
  const int lane = threadIdx.x % 32;
  if constexpr (F::kBytes) {  // four neighbouring channels of 16
#pragma unroll
    for (int g = 0; g < F::kHead / 16; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float *even = &sums.o[0][g * 8 + h * 2], *odd = even + 4;
        cuda::store_shared(to + g / 4 * F::kResultBlock + swizzled_offset(lane / 4 + h * 8, g % 4 * 32 + lane % 4 * 8),
                           uint2{cuda::pack_pair<Half>(even[0] * factor[h], odd[0] * factor[h]), cuda::pack_pair<Half>(even[1] * factor[h], odd[1] * factor[h])});
      }
    }
  } else {
#pragma unroll
    for (int b = 0; b < F::kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float* o = &sums.o[b][j * 4];
        const uint32_t r[4] = {cuda::pack_pair<Half>(o[0] * factor[0], o[1] * factor[0]), cuda::pack_pair<Half>(o[2] * factor[1], o[3] * factor[1]),
                               cuda::pack_pair<Half>(o[4] * factor[0], o[5] * factor[0]), cuda::pack_pair<Half>(o[6] * factor[1], o[7] * factor[1])};
        store_matrices(to + b * F::kResultBlock + swizzled_offset(lane % 16, (j + lane / 16) * 16), r);
      }
    }
  }
}

// ... or as e4m3 or int8 in rows of 64 or 128 bytes.
template <class F>
constexpr int kResultRow = F::kHead == 64 ? 64 : 128;
template <class F, bool kInt8>
__device__ __forceinline__ void stage_codes(const ShortSums<F>& sums, const float (&factor)[2], uint32_t to) {
  constexpr int kRow = kResultRow<F>;
  const int lane = threadIdx.x % 32;
  if constexpr (F::kBytes) {
#pragma unroll
    for (int g = 0; g < F::kHead / 16; g += 2) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float *even = &sums.o[0][(g + i / 2) * 8 + i % 2 * 2], *odd = even + 4, f = factor[i % 2];
        r[i] = pack_e4m3(even[0] * f, odd[0] * f, even[1] * f, odd[1] * f);
      }
      store_matrices(to + swizzled_offset<kRow>(lane % 16, (g + lane / 16) * 16), r);
    }
  } else {
#pragma unroll
    for (int j = 0; j < F::kHead / 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* o = &sums.o[j / 8][j % 8 * 4 + h * 2];
        const float a = o[0] * factor[h], b = o[1] * factor[h];
        cuda::store_shared(to + swizzled_offset<kRow>(lane / 4 + h * 8, j * 8 + lane % 4 * 2),
                           kInt8 ? cuda::encode_i8_pair(a, b) : static_cast<uint16_t>(cuda::encode_e4m3_pair(a, b)));
      }
    }
  }
}

// Codes from shared memory to rows of y that the copy engine cannot address: eight bytes a lane.
template <class F>
__device__ void copy_codes(const ShortParams& p, uint32_t from, int batch, int head, int first_query) {
  const int lane = threadIdx.x % 32, channel = lane % 16 * 8;
  const int64_t row_bytes = int64_t{p.heads.divisor} * p.value_size;
  __syncwarp();
  for (int r = lane / 16; r < kWarpRows; r += 2) {
    if (channel >= p.value_size || first_query + r >= p.queries) continue;
    const uint2 codes = cuda::load_shared_pair(from + swizzled_offset<kResultRow<F>>(r, channel));
    *reinterpret_cast<uint2*>(p.y + (int64_t{batch} * p.queries + first_query + r) * row_bytes + int64_t{head} * p.value_size + channel) = codes;
  }
  __syncwarp();
}

// A warp's 16 rows of y, from first_query on.
template <class F>
__device__ __forceinline__ void write_rows(const ShortMaps& maps, const ShortParams& p, const ShortSums<F>& sums, const float (&factor)[2], uint32_t staging,
                                           int visit, int first_query) {
  const ShortVisit at(p, visit);  // once more: two registers less while the scores are held
  const bool leader = threadIdx.x % 32 == 0;
  if (leader) wait_stores_read();  // those of the last tile
  __syncwarp();
  if (p.result == ShortResult::kE4m3) {
    stage_codes<F, false>(sums, factor, staging);
  } else if constexpr (F::kBytes) {
    p.result == ShortResult::kF16 ? stage_halves<F, __half>(sums, factor, staging) : stage_halves<F, __nv_bfloat16>(sums, factor, staging);
  } else if (p.result == ShortResult::kI8) {
    stage_codes<F, true>(sums, factor, staging);
  } else {
    stage_halves<F, typename F::Operand>(sums, factor, staging);
  }
  if (p.y != nullptr) return copy_codes<F>(p, staging, at.batch, at.head, first_query);
  fence_for_copy_engine();
  __syncwarp();
  if (!leader) return;
  store_box(&maps.y, 0, at.head, first_query, at.batch, staging);
  if (F::kHead > 64 && (p.result == ShortResult::kF16 || p.result == ShortResult::kBf16) && p.value_size > 64)
    store_box(&maps.y, 64, at.head, first_query, at.batch, staging + F::kResultBlock);
  commit_stores();
}

}  // namespace tessera::sm90
