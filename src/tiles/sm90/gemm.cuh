// SPDX-License-Identifier: Apache-2.0
// The normal mainloop on Hopper: y[m, n] = program(sum_k x[m, k] * w[n, k]), both operands K-major, by TMA into a ring
// of stages, products by wgmma. In each of the persistent blocks one warpgroup loads and two take tiles in turns: while
// one multiplies, the other runs the program on its finished tile and stores it, so the program costs no tensor-core
// time as long as it is shorter than the products. docs/design/0013 has what was tried and measured. Here: shape of a
// tile, shared memory, parameters. gemm_tiles.h has the order of tiles, gemm_load.cuh loads,
// gemm_products.cuh multiplies, gemm_finish.cuh runs the program, gemm_run.cuh is the kernel.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "archs/sm90/chip.h"
#include "archs/sm90/instructions.cuh"
#include "tiles/sm90/activation_fast.h"
#include "tiles/sm90/gemm_tiles.h"
#include "tiles/sm90/image_windows.h"
#include "tiles/sm90/k_slices.h"

namespace tessera::sm90 {

// kPromoted: FP8 sums, of which the tensor cores keep about 13 bits, are added to f32 ones after every block of K (128
// products). While one block's are added, the next block's may be made: three sets of sums, which fit the registers for
// 64 x 128. kResident: a block keeps its rows of w, at most kResidentBlocks blocks of K, in shared memory and takes
// tiles of this one column only, so that nothing but x travels. Runs no gate. kSplit: where tiles are fewer than SMs,
// the blocks of a cluster share one tile, a slice of K each; every block then finishes some of the tile's columns
// (gemm_share.cuh). One of its consumers works, on one tile. Runs no activation. kWindows: rows of x are windows of
// images (image_windows.h). kTokens: codes of x have a scale per row, which an earlier kernel made.
template <int kCols_, bool kPromoted_ = false, bool kResident_ = false, bool kSplit_ = false, bool kWindows_ = false,
          bool kTokens_ = false>
struct GemmShape {
  static constexpr int kCols = kCols_;  // of a tile: 128, 192
  static constexpr bool kPromoted = kPromoted_, kResident = kResident_, kSplit = kSplit_, kWindows = kWindows_,
                        kTokens = kTokens_, kGates = !kPromoted && !kResident && !kSplit && !kWindows;
  static constexpr int kMma = kPromoted ? 1 : 2;                           // groups of 64 rows of a tile
  static constexpr int kSums = kMma * kCols / 2 * (kPromoted ? 3 : 1);     // registers of a thread
  static constexpr int kConsumers = 2, kThreads = 128 * (1 + kConsumers);  // warpgroups that take tiles in turns
  static constexpr int kRows = 64 * kMma;
  // Programs with an activation and a gain or a residual, and gates of 16-bit results: no registers are left for them
  // beside 192 sums that are all alive.
  static constexpr bool kRunsAny = kPromoted || kSums <= 128;
  // Registers: a thread starts with 168, the loading warpgroup gives most of its own to the others.
  static constexpr int kSpareRegisters = kSums > 128 && !kSplit && !kWindows ? 24 : 40,
                       kRegisters = (3 * 168 - kSpareRegisters) / kConsumers;
};

constexpr int kWarpgroup = 128;

// Shared memory of a block: w (kResident), stages of x and else of w, the residual of one tile (16-bit results), per
// consumer a table for its tile's program, barriers.
template <class Shape, class Out>
struct GemmMemory {
  static constexpr int kXBytes = Shape::kRows * 128, kWBytes = Shape::kCols * 128,
                       kStageBytes = kXBytes + (Shape::kResident ? 0 : kWBytes);
  static constexpr int kResidentParts = Shape::kResident ? kResidentBlocks : 0,
                       kResidentBytes = kResidentParts * kWBytes;
  // Factor and bias of each column, then the gains, then the tile's first row and column (kWindows: and the first one
  // that is not its own); kTokens: the scales of the tile's rows.
  static constexpr int kTokensAt = Shape::kCols * 12 + 16,
                       kTableBytes = kTokensAt + (Shape::kTokens ? Shape::kRows * 4 : 0);
  static constexpr int kResidualBox = Shape::kRows * 64, kResidualBytes = sizeof(Out) == 2
                                                                              ? kResidualBox * (Shape::kCols / 32)
                                                                              : 0;  // boxes of 32 columns
  static constexpr int kFixedBytes = kResidentBytes + kResidualBytes + Shape::kConsumers * kTableBytes;
  static constexpr int kStages = (kMostSharedBytes - kFixedBytes - 256) / kStageBytes;
  static constexpr int kBarriers = 2 * kStages + Shape::kConsumers * 3 + 1 + kResidentParts + (Shape::kSplit ? 1 : 0);
  static constexpr int kBytes = kStages * kStageBytes + kFixedBytes + kBarriers * 8;
  static_assert(kStages >= (Shape::kResident ? 4 : 3) && kBytes <= kMostSharedBytes && kBarriers * 8 <= 256);
  static_assert(kXBytes % 1024 == 0 && kWBytes % 1024 == 0);  // kSwizzleAtomBytes

  uint32_t base;
  __device__ uint32_t x(int stage) const { return base + kResidentBytes + stage * kStageBytes; }
  // w of a stage; kResident: of a block of K.
  __device__ uint32_t w(int place) const { return Shape::kResident ? base + place * kWBytes : x(place) + kXBytes; }
  __device__ uint32_t residual() const { return base + kResidentBytes + kStages * kStageBytes; }
  __device__ uint32_t table(int consumer) const { return residual() + kResidualBytes + consumer * kTableBytes; }
  __device__ uint32_t tokens(int consumer) const { return table(consumer) + kTokensAt; }
  __device__ uint32_t full(int stage) const { return base + kBytes - kBarriers * 8 + stage * 8; }
  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }
  __device__ uint32_t table_full(int consumer) const { return full(2 * kStages + consumer); }
  __device__ uint32_t table_empty(int consumer) const { return table_full(Shape::kConsumers + consumer); }
  __device__ uint32_t residual_full(int consumer) const { return table_full(2 * Shape::kConsumers + consumer); }
  __device__ uint32_t residual_empty() const { return table_full(3 * Shape::kConsumers); }
  __device__ uint32_t w_full(int k_block) const { return residual_empty() + 8 + k_block * 8; }  // kResident
  __device__ uint32_t received() const { return residual_empty() + 8; }                         // kSplit
};

struct GemmMaps {
  CUtensorMap x, w, residual;
};

struct GemmParams {
  GemmTiles tiles;
  int k_blocks, m, cols;  // rows and columns of y
  int split;              // kSplit: blocks that share a tile, else 1
  void* y;                // dense rows
  const float* x_scale;   // null: 1; kTokens: one for each row
  const float* w_scale;
  int w_scale_stride;       // 1: per channel, 0: per tensor
  const void *bias, *gain;  // null where the program has none
  bool computed;            // one of them is what an earlier kernel makes, no constant
  const float* y_scale;     // 8-bit results
  bool residual;
  int residual_rows;  // as many as y has, or whole tiles of them, again and again
  bool gated;  // act is the gate's; nothing but bias and quantization stands beside it (tiles/sm90/gated_columns.h)
  SmoothActivation act;
  ImageWindows windows;  // kWindows
};

// The tiles of this block, one after the other. kSplit: the one of its cluster.
template <class Shape>
struct TileWalk {
  uint32_t number;
  __device__ explicit TileWalk(const GemmParams& p)
      : number(Shape::kSplit ? blockIdx.x / static_cast<uint32_t>(p.split) : blockIdx.x) {}
  __device__ bool done(const GemmParams& p) const { return number >= p.tiles.count; }
  __device__ void next() { number += gridDim.x; }
  __device__ int m(const GemmParams& p) const { return static_cast<int>(p.tiles.row(number)) * Shape::kRows; }
  __device__ int col(const GemmParams& p) const { return static_cast<int>(p.tiles.col(number)); }
  __device__ int n(const GemmParams& p) const {
    if constexpr (Shape::kWindows) return p.windows.first_column(col(p), Shape::kCols);
    return col(p) * Shape::kCols;
  }
};

// Blocks that share a tile: known to the compiler where there is one number only.
template <class Shape>
__device__ __forceinline__ int split_here(const GemmParams& p) {
  return !Shape::kSplit ? 1 : most_split(Shape::kCols) == 2 ? 2 : p.split;
}

// The blocks of K that this block multiplies: all, or its slice.
struct KRange {
  int begin, end;
};
template <class Shape>
__device__ __forceinline__ KRange k_range(const GemmParams& p) {
  if constexpr (!Shape::kSplit) return {0, p.k_blocks};
  const int slice = static_cast<int>(rank_in_cluster());
  return {slice_begin(p.k_blocks, p.split, slice), slice_begin(p.k_blocks, p.split, slice + 1)};
}

}  // namespace tessera::sm90
