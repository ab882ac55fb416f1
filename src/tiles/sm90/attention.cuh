// SPDX-License-Identifier: Apache-2.0
// What the short (short.cuh) and the streaming (stream.cuh) attention of Hopper share.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "archs/cuda/instructions.cuh"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "archs/sm90/transposed_bytes.h"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/sums.cuh"

namespace tessera::sm90 {

constexpr int kWarpgroup = 128;
constexpr double kLog2e = 1.44269504088896341;
constexpr float kLog2Of448 = 8.80735492205760411f;  // weights that become e4m3 are 448 at most

// One step of a warp: from and to are where the lane points, the selectors those of matrices 0 and 1
// (archs/sm90/transposed_bytes.h).
__device__ __forceinline__ void transpose_bytes(uint32_t from, uint32_t to, uint32_t first, uint32_t second) {
  uint32_t r[4];
  cuda::load_matrices_transposed(r, from);
  const uint32_t parted[4] = {__byte_perm(r[0], r[1], first), __byte_perm(r[0], r[1], second),
                              __byte_perm(r[2], r[3], first), __byte_perm(r[2], r[3], second)};
  store_matrices(to, parted);
}

}  // namespace tessera::sm90
