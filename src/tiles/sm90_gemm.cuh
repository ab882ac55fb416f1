// SPDX-License-Identifier: Apache-2.0
// The normal mainloop on Hopper: y[m, n] = program(sum_k x[m, k] * w[n, k]), both operands K-major, by TMA into a ring of stages, products by wgmma. In each of the persistent
// blocks one warpgroup loads and two take tiles in turns: while one multiplies, the other runs the program on its finished tile and stores it, so the program costs no
// tensor-core time as long as it is shorter than the products. docs/design/0013 has what was tried and measured.
// Here: shape of a tile, shared memory, parameters, the order of tiles. sm90_gemm_load.cuh loads, sm90_gemm_products.cuh multiplies, sm90_gemm_finish.cuh runs the program,
// sm90_gemm_run.cuh is the kernel.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tiles/activation_fast.h"

namespace tessera::sm90 {

// kPromoted: FP8 sums, of which the tensor cores keep about 13 bits, are added to f32 ones after every block of K (128 products). While one block's are added, the next
// block's may be made: three sets of sums, which fit the registers for 64 x 128.
template <int kCols_, bool kPromoted_ = false>
struct GemmShape {
  static constexpr int kCols = kCols_;  // of a tile: 128, 192
  static constexpr bool kPromoted = kPromoted_;
  static constexpr int kMma = kPromoted ? 1 : 2;                             // groups of 64 rows of a tile
  static constexpr int kSums = kMma * kCols / 2 * (kPromoted ? 3 : 1);        // registers of a thread
  static constexpr int kConsumers = 2, kThreads = 128 * (1 + kConsumers);  // warpgroups that take tiles in turns
  static constexpr int kRows = 64 * kMma;
  // Programs with an activation and a gain or a residual, and gates of 16-bit results: no registers are left for them beside 192 sums that are all alive.
  static constexpr bool kRunsAny = kPromoted || kSums <= 128;
  // Registers: a thread starts with 168, the loading warpgroup gives most of its own to the others.
  static constexpr int kSpareRegisters = kSums > 128 ? 24 : 40, kRegisters = (3 * 168 - kSpareRegisters) / kConsumers;
};

constexpr int kWarpgroup = 128;
constexpr int kSharedLimit = 232448;

// Shared memory of a block: stages of x and w, the residual of one tile (16-bit results), per consumer a table for its tile's program, barriers.
template <class Shape, class Out>
struct GemmMemory {
  static constexpr int kXBytes = Shape::kRows * 128, kWBytes = Shape::kCols * 128, kStageBytes = kXBytes + kWBytes;
  static constexpr int kTableBytes = Shape::kCols * 12 + 16;  // factor and bias of each column, then the gains, then the tile's first row and column
  static constexpr int kResidualBox = Shape::kRows * 64, kResidualBytes = sizeof(Out) == 2 ? kResidualBox * (Shape::kCols / 32) : 0;  // boxes of 32 columns
  static constexpr int kFixedBytes = kResidualBytes + Shape::kConsumers * kTableBytes;
  static constexpr int kStages = (kSharedLimit - kFixedBytes - 256) / kStageBytes;
  static constexpr int kBarriers = 2 * kStages + Shape::kConsumers * 3 + 1;
  static constexpr int kBytes = kStages * kStageBytes + kFixedBytes + kBarriers * 8;
  static_assert(kStages >= 3 && kBytes <= kSharedLimit && kBarriers * 8 <= 256);

  uint32_t base;
  __device__ uint32_t x(int stage) const { return base + stage * kStageBytes; }
  __device__ uint32_t residual() const { return base + kStages * kStageBytes; }
  __device__ uint32_t table(int consumer) const { return residual() + kResidualBytes + consumer * kTableBytes; }
  __device__ uint32_t full(int stage) const { return base + kBytes - kBarriers * 8 + stage * 8; }
  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }
  __device__ uint32_t table_full(int consumer) const { return full(2 * kStages + consumer); }
  __device__ uint32_t table_empty(int consumer) const { return table_full(Shape::kConsumers + consumer); }
  __device__ uint32_t residual_full(int consumer) const { return table_full(2 * Shape::kConsumers + consumer); }
  __device__ uint32_t residual_empty() const { return table_full(3 * Shape::kConsumers); }
};

struct GemmMaps {
  CUtensorMap x, w, residual;
};

struct GemmParams {
  uint32_t tiles, blocks;  // of the grid
  uint32_t tiles_m, tiles_n;
  int k_blocks, m, cols;  // rows and columns of y
  void* y;  // dense rows
  const float* x_scale;  // null: 1
  const float* w_scale;
  int w_scale_stride;       // 1: per channel, 0: per tensor
  const void *bias, *gain;  // null where the program has none
  const float* y_scale;     // 8-bit results
  bool by_rows, backward;  // order of tiles
  bool residual;
  int residual_rows;  // as many as y has, or whole tiles of them, again and again
  bool gated;  // act is the gate's; nothing but bias and quantization stands beside it (tiles/gated_columns.h)
  SmoothActivation act;
};

// Tiles that run at the same time share rows of x (by_rows) or rows of w, whichever is the smaller matrix: the larger one is read from memory once, the smaller one stays
// in the L2.
template <class Shape>
struct TileWalk {
  uint32_t index = blockIdx.x;
  __device__ bool done(const GemmParams& p) const { return index >= p.tiles; }
  __device__ void next() { index += gridDim.x; }
  __device__ uint32_t place(const GemmParams& p) const { return p.backward ? p.tiles - 1 - index : index; }
  __device__ int m(const GemmParams& p) const { return static_cast<int>(p.by_rows ? place(p) / p.tiles_n : place(p) % p.tiles_m) * Shape::kRows; }
  __device__ int n(const GemmParams& p) const { return static_cast<int>(p.by_rows ? place(p) % p.tiles_n : place(p) / p.tiles_m) * Shape::kCols; }
};

}  // namespace tessera::sm90
