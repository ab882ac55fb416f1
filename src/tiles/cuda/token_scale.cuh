// SPDX-License-Identifier: Apache-2.0
// The scale of a row of e4m3 that is made while running: scale = largest magnitude / 448, 1 for a row of zeros; code =
// encode(x / scale). The rule is that of types/quantize_array.h.
#pragma once

#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/sums.cuh"

namespace tessera::cuda {

struct TokenScale {
  float value;
  float lift, inverse;  // 1 / value is lift * inverse, which f32 holds in two parts for the smallest rows, too
  __device__ __forceinline__ float quotient(float x) const { return x * lift * inverse; }
};

// A NaN makes the scale NaN.
__device__ __forceinline__ TokenScale token_scale(float largest) {
  const float wanted = largest / 448.0f, value = wanted == 0.0f ? 1.0f : wanted;
  const float lift = value < 0x1p-100f ? 0x1p100f : 1.0f;
  return {value, lift, 1.0f / (value * lift)};
}

__device__ __forceinline__ float largest_magnitude(const float (&v)[8]) {
  float largest = fabsf(v[0]);
#pragma unroll
  for (int i = 1; i < 8; ++i) largest = Max::apply(largest, fabsf(v[i]));
  return largest;
}

}  // namespace tessera::cuda
