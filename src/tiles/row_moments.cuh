// SPDX-License-Identifier: Apache-2.0
// Moments of rows on the device (ops/row_moments.h says what they are): eight neighbouring lanes take those of 64 numbers, eight each, and join those of a row. Fixed order: the
// same bits every time.
#pragma once

#include <cstdint>

namespace tessera::cuda {

constexpr int kMomentLanes = 8;

// Count, mean and squared distances from it of some numbers of a row.
struct Moments {
  float count = 0.0f, mean = 0.0f, squares = 0.0f;

  __device__ __forceinline__ void join(const Moments& b) {
    const float all = count + b.count;
    if (all == 0.0f) return;
    const float share = __fdividef(b.count, all), apart = b.mean - mean;
    mean = fmaf(apart, share, mean);
    squares = squares + b.squares + apart * apart * (count * share);
    count = all;
  }
};

__device__ __forceinline__ float sum_of_lanes(float v) {
#pragma unroll
  for (int lane = 1; lane < kMomentLanes; lane *= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
  return v;
}

// Of the 64 numbers that eight lanes hold, or `count` of them where whole lanes hold none (`holds`). All lanes of the warp call this.
__device__ __forceinline__ float2 moments_of(const float (&v)[8], bool holds, float count) {
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += holds ? v[i] : 0.0f;
  const float mean = __fdividef(sum_of_lanes(sum), count);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float d = holds ? v[i] - mean : 0.0f;
    squares = fmaf(d, d, squares);
  }
  return {mean, sum_of_lanes(squares)};
}

// How a row's moments become the factor of a `normalise` step.
struct RowFactors {
  const float2* moments = nullptr;  // null: the program has no such step
  int cols = 0, groups = 0;
  float eps = 0.0f;
  bool rms = false;

  // 1 / deviation of a row, the same in eight neighbouring lanes that ask for the same row. All lanes of the warp call this; `exists` is false where there is no such row.
  __device__ __forceinline__ float of(int64_t row, bool exists) const {
    Moments m;
    for (int g = threadIdx.x % kMomentLanes; exists && g < groups; g += kMomentLanes) {
      const float2 group = moments[row * groups + g];
      m.join({static_cast<float>(min(64, cols - g * 64)), group.x, group.y});
    }
#pragma unroll
    for (int lane = 1; lane < kMomentLanes; lane *= 2) {
      const Moments other{__shfl_xor_sync(0xffffffffu, m.count, lane), __shfl_xor_sync(0xffffffffu, m.mean, lane), __shfl_xor_sync(0xffffffffu, m.squares, lane)};
      Moments low = threadIdx.x & lane ? other : m;  // the lower lane's first, in both
      low.join(threadIdx.x & lane ? m : other);
      m = low;
    }
    return rsqrtf(__fdividef(m.squares, static_cast<float>(cols)) + (rms ? m.mean * m.mean : 0.0f) + eps);
  }
};

}  // namespace tessera::cuda
