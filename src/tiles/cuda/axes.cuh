// SPDX-License-Identifier: Apache-2.0
// From a position in a dense result to the positions in strided operands: at most kMaxAxes axes, sizes divided out by
// multiplication. The contract side (can these axes be walked?) is in tiles/cuda/device_axes.h.
#pragma once

#include "tiles/cuda/device_axes.h"

namespace tessera::cuda {

// offset[o] = where operand o has the element that is `index` in row order.
template <int kOperands>
__device__ __forceinline__ void offsets_at(const DeviceAxes<kOperands>& axes, uint32_t index,
                                           int64_t (&offset)[kOperands]) {
#pragma unroll
  for (int o = 0; o < kOperands; ++o) offset[o] = 0;
#pragma unroll
  for (int a = kMaxAxes - 1; a >= 0; --a) {
    if (a >= axes.rank) continue;
    uint32_t at = index;
    if (a > 0) {
      const uint32_t outer = axes.size[a].quotient(index);
      at = index - outer * axes.size[a].divisor;
      index = outer;
    }
#pragma unroll
    for (int o = 0; o < kOperands; ++o) offset[o] += static_cast<int64_t>(at) * axes.stride[o][a];
  }
}

}  // namespace tessera::cuda
