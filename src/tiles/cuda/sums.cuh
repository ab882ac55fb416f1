// SPDX-License-Identifier: Apache-2.0
// Sums and maxima across four lanes, a warp or a block, in a fixed order: the same numbers give the same bits. Every
// lane (thread) gets the result.
#pragma once

#include <cmath>

namespace tessera::cuda {

struct Add {
  static constexpr float kNeutral = 0.0f;
  __device__ __forceinline__ static float apply(float a, float b) { return a + b; }
};
// A NaN on either side stays.
struct Max {
  static constexpr float kNeutral = -INFINITY;
  __device__ __forceinline__ static float apply(float a, float b) { return a != a || a > b ? a : b; }
};

template <class Fn>
__device__ __forceinline__ float across_warp(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v = Fn::apply(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}
__device__ __forceinline__ float sum_across_warp(float v) { return across_warp<Add>(v); }

// Across a quad, the four neighbouring lanes that hold a row of a tensor core's result.
__device__ __forceinline__ float sum_across_quad(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
// A NaN is passed over: fmaxf is one instruction.
__device__ __forceinline__ float max_across_quad(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

// kThreads: of the block, a multiple of 32. `scratch` holds kThreads / 32 floats; it may be used again after the next
// __syncthreads.
template <class Fn, int kThreads>
__device__ __forceinline__ float across_block(float v, float* scratch) {
  v = across_warp<Fn>(v);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  v = scratch[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) v = Fn::apply(v, scratch[w]);
  __syncthreads();
  return v;
}

}  // namespace tessera::cuda
