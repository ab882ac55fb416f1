// SPDX-License-Identifier: Apache-2.0
// Moments of rows on the device (steps/row_moments.h says what they are): eight neighbouring lanes take those of 64
// numbers, eight each, and join those of a row. Fixed order: the same bits every time.
#pragma once

#include <cstdint>

namespace tessera::cuda {

constexpr int kMomentLanes = 8;

__device__ __forceinline__ float sum_of_lanes(float v) {
#pragma unroll
  for (int lane = 1; lane < kMomentLanes; lane *= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
  return v;
}

// Of `count` numbers in each of kRows rows, which eight lanes hold, eight each; where there are fewer than 64 the last
// lanes hold none. Each lane's own first, then those of neighbours join, which are of as many numbers: mean (a + b) /
// 2, squares a + b + (b - a)^2 n / 2. All lanes of the warp call this.
template <int kRows>
__device__ __forceinline__ void take_moments(const float (&v)[kRows][8], bool holds, int count,
                                             float2 (&moments)[kRows]) {
  if (count < 64) {  // tails: about the mean of all
    const float inverse = 1.0f / static_cast<float>(count);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float sum = 0.0f, squares = 0.0f;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += holds ? v[i][j] : 0.0f;
      const float mean = sum_of_lanes(sum) * inverse;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float d = holds ? v[i][j] - mean : 0.0f;
        squares = fmaf(d, d, squares);
      }
      moments[i] = {mean, sum_of_lanes(squares)};
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float mean =
        (((v[i][0] + v[i][1]) + (v[i][2] + v[i][3])) + ((v[i][4] + v[i][5]) + (v[i][6] + v[i][7]))) * 0.125f;
    float d[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) d[j] = v[i][j] - mean;
    const float even = fmaf(d[0], d[0], fmaf(d[2], d[2], fmaf(d[4], d[4], d[6] * d[6]))),
                odd = fmaf(d[1], d[1], fmaf(d[3], d[3], fmaf(d[5], d[5], d[7] * d[7])));
    moments[i] = {mean, even + odd};
  }
#pragma unroll
  for (int lane = 1; lane < kMomentLanes; lane *= 2) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float2 other{__shfl_xor_sync(0xffffffffu, moments[i].x, lane),
                         __shfl_xor_sync(0xffffffffu, moments[i].y, lane)};
      const float apart = other.x - moments[i].x;
      moments[i] = {(moments[i].x + other.x) * 0.5f,
                    fmaf(apart * apart, static_cast<float>(4 * lane), moments[i].y + other.y)};
    }
  }
}

// How a row's moments become the factor of a `normalise` step.
struct RowFactors {
  const float2* moments = nullptr;  // null: the program has no such step
  int cols = 0, groups = 0;
  float inverse_cols = 0.0f, eps = 0.0f;
  bool rms = false;

  // 1 / deviation of kRows rows, `step` apart from `row` on, of which those before `end` exist. Eight neighbouring
  // lanes ask for the same rows; all lanes of the warp call this. What up to 16 groups hold is on its way at once, for
  // all rows: one latency, not one after the other. From the L2: in a chain (tiles/sm90/chain/chain.cuh) another SM
  // may have written them since this one last read there.
  template <int kRows>
  __device__ __forceinline__ void load(int64_t row, int step, int64_t end, float (&factor)[kRows]) const {
    constexpr int kEarly = 2;
    const int lane = threadIdx.x % kMomentLanes;
    float2 early[kRows][kEarly];
#pragma unroll
    for (int i = 0; i < kRows * kEarly; ++i) {
      const int64_t at = row + i / kEarly * step;
      const int g = lane + i % kEarly * kMomentLanes;
      early[i / kEarly][i % kEarly] = at < end && g < groups ? __ldcg(moments + at * groups + g) : float2{0.0f, 0.0f};
    }
    float mean[kRows], squares[kRows];
    const auto each_group = [&](int i, auto see) {
#pragma unroll
      for (int e = 0; e < kEarly; ++e) see(lane + e * kMomentLanes, early[i][e]);
      const int64_t at = row + i * step;
#pragma unroll 1
      for (int g = lane + kEarly * kMomentLanes; at < end && g < groups; g += kMomentLanes)
        see(g, __ldcg(moments + at * groups + g));
    };
    const auto count = [&](int g) { return static_cast<float>(max(0, min(64, cols - g * 64))); };
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float sum = 0.0f;
      each_group(i, [&](int g, const float2& m) { sum = fmaf(m.x, count(g), sum); });
      mean[i] = sum_of_lanes(sum) * inverse_cols;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float sum = 0.0f;
      each_group(i, [&](int g, const float2& m) {
        const float apart = m.x - mean[i];
        sum += fmaf(apart * apart, count(g), m.y);
      });
      squares[i] = sum_of_lanes(sum) * inverse_cols;
      factor[i] = rsqrtf(squares[i] + (rms ? mean[i] * mean[i] : 0.0f) + eps);
    }
  }
};

}  // namespace tessera::cuda
