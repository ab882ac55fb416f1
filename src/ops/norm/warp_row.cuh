// SPDX-License-Identifier: Apache-2.0
// A row of 16-bit numbers in the registers of one warp, and its statistics: what the norms that keep rows there share.
// Chunk c of a lane holds columns (c * 32 + lane) * 8 ... + 7. kChunks is the smallest of 1, 2, 3, 4, 6, 8 that covers
// a row.
#pragma once

#include "archs/planted_fault.h"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/sums.cuh"

namespace tessera::cuda {

template <int kChunks>
struct WarpRow {
  uint4 raw[kChunks];
};

template <int kChunks>
__device__ __forceinline__ bool has_columns(int cols, int chunk) {
  constexpr int kSure = kChunks <= 4 ? kChunks - 1 : kChunks - 2;  // chunks that every row of this kernel fills
  return chunk < kSure || (chunk * 32 + static_cast<int>(threadIdx.x % 32)) * 8 < cols;
}

// Zeros where there is no such row or column. `row` begins at a multiple of 16 bytes.
template <int kChunks>
__device__ __forceinline__ void load_row(const uint16_t* row, bool exists, int cols, WarpRow<kChunks>& r) {
  const uint4* from = reinterpret_cast<const uint4*>(row) + threadIdx.x % 32;
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
    r.raw[c] = exists && has_columns<kChunks>(cols, c) ? __ldcg(from + c * 32) : uint4{};
}

// The numbers of a row, and this lane's sum of them.
template <Element kIn, int kChunks>
__device__ __forceinline__ float decode_row(const WarpRow<kChunks>& r, float (&v)[kChunks][8]) {
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    decode8(kIn, {r.raw[c], {}}, v[c]);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += v[c][i];
  }
  return sum;
}

// Takes the row's mean off (RMSNorm: 0) and returns 1 / deviation. The variance is taken about the mean, in a second
// pass over registers: no cancellation. `per_column` = 1 / cols.
template <int kChunks>
__device__ __forceinline__ float centre_row(float (&v)[kChunks][8], float sum, int cols, float per_column, bool rms,
                                            float eps) {
  const float mean = rms ? 0.0f : sum_across_warp(sum) * per_column;
  float square = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const float middle = has_columns<kChunks>(cols, c) ? mean : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (!planted(Fault::kMeanKept) || i < 7) v[c][i] -= middle;
      square = fmaf(v[c][i], v[c][i], square);
    }
  }
  return rsqrtf(sum_across_warp(square) * per_column + eps);
}

}  // namespace tessera::cuda
