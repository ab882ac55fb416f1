// SPDX-License-Identifier: Apache-2.0
// The normal mainloop on Hopper: y[m, n] = program(sum_k x[m, k] * w[n, k]), both operands K-major, by TMA into a ring of stages, products by wgmma. In each of the persistent
// blocks one warpgroup loads and two take tiles in turns: while one multiplies, the other runs the program on its finished tile and stores it, so the program costs no
// tensor-core time as long as it is shorter than the products. docs/design/0013 has what was tried and measured.
#pragma once

#include <type_traits>

#include "archs/cuda/instructions.cuh"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "tiles/activation_fast.h"
#include "tiles/cuda_elements.cuh"
#include "tiles/gated_columns.h"
#include "types/layout.h"

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
  bool by_rows;  // order of tiles
  bool residual;
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
  __device__ int m(const GemmParams& p) const { return static_cast<int>(p.by_rows ? index / p.tiles_n : index % p.tiles_m) * Shape::kRows; }
  __device__ int n(const GemmParams& p) const { return static_cast<int>(p.by_rows ? index % p.tiles_n : index / p.tiles_m) * Shape::kCols; }
};

// One thread loads x, another w: each has few enough values to run in the registers that the consumers leave.
template <class Shape, class In, class Memory, bool kX>
__device__ void load_operand(const CUtensorMap* map, const GemmParams& p, const Memory& memory) {
  constexpr int kBlockK = 128 / sizeof(In), kBytes = kX ? Memory::kXBytes : Memory::kWBytes;
  const uint32_t first = memory.x(0) + (kX ? 0 : Memory::kXBytes);
  uint32_t slot = first, full = memory.full(0), parity = 1;
  for (TileWalk<Shape> at; !at.done(p); at.next()) {
    const bool gated = !kX && !Shape::kPromoted && p.gated;
    const int row = kX ? at.m(p) : gated ? at.n(p) / kGatePair : at.n(p);
    for (int kb = 0; kb < p.k_blocks; ++kb) {
      wait(full + Memory::kStages * 8, parity);
      arrive_expecting(full, kBytes);
      if (gated) {
        load_box(slot, map, kb * kBlockK, 0, 0, row, full);
      } else {
        load_box(slot, map, kb * kBlockK, row, full);
      }
      slot += Memory::kStageBytes, full += 8;
      if (slot == first + Memory::kStages * Memory::kStageBytes) slot = first, full -= Memory::kStages * 8, parity ^= 1;
    }
  }
}

// Two warps bring what the program of the tile after this one needs, so that no consumer waits for it (one of them where the other brings residuals): where the tile lies, and of
// each column factor and bias, v = sum * factor + bias, in units of y's scale and with the gain in it where no activation stands between, halved where one does
// (activation_fast.h); of a gate the argument is halved, the other factor in units of y's scale. In the order of the products' columns, which is not that of y's
// (types/layout.h, pairs32; gated_columns.h).
template <class Shape, class In, class Vector, class Memory>
__device__ void load_tables(const GemmParams& p, const Memory& memory) {
  const int first = threadIdx.x % 64, lanes = p.residual ? 32 : 64;
  const float y_unit = p.y_scale != nullptr ? 1.0f / *p.y_scale : 1.0f, x_scale = p.x_scale != nullptr ? *p.x_scale : 1.0f;
  uint32_t consumer = 0, parity = 1;
  for (TileWalk<Shape> at; !at.done(p); at.next()) {
    const int m = at.m(p), n = at.n(p);
    wait(memory.table_empty(consumer), parity);
    const uint32_t table = memory.table(consumer);
    if (first == 0) cuda::store_shared(table + Shape::kCols * 12, uint2{static_cast<uint32_t>(m), static_cast<uint32_t>(n)});
#pragma unroll 1
    for (int i = first; i < Shape::kCols; i += lanes) {
      const bool gated = !Shape::kPromoted && p.gated;
      const GatedColumn place = gated ? gated_column(n + i) : GatedColumn{0, n + turn_pairs32(i)};
      const bool exists = place.column < p.cols;
      const int col = place.half * p.cols + place.column;
      const float unit = p.act.present && place.half == 0 ? 0.5f : y_unit;
      float factor = x_scale * unit, bias = 0, gain = 1;
      if (exists && sizeof(In) == 1) factor *= p.w_scale[col * p.w_scale_stride];
      if (exists && p.bias != nullptr) bias = static_cast<float>(static_cast<const Vector*>(p.bias)[col]) * unit;
      if (exists && p.gain != nullptr) gain = static_cast<float>(static_cast<const Vector*>(p.gain)[col]);
      cuda::store_shared(table + i * 8, p.act.present ? float2{factor, bias} : float2{factor * gain, bias * gain});
      if (p.act.present) cuda::store_shared(table + Shape::kCols * 8 + i * 4, gain);
    }
    arrive(memory.table_full(consumer));
    consumer ^= 1, parity ^= consumer ^ 1;
  }
}

// One thread brings the residual of each tile, as soon as the one before has been added.
template <class Shape, class Memory>
__device__ void load_residuals(const CUtensorMap* map, const GemmParams& p, const Memory& memory) {
  uint32_t tile = 0;
  for (TileWalk<Shape> at; !at.done(p); at.next(), ++tile) {
    const int m = at.m(p), n = at.n(p);
    const uint32_t full = memory.residual_full(tile & 1);
    wait(memory.residual_empty(), (tile + 1) & 1);
    arrive_expecting(full, Memory::kResidualBytes);
#pragma unroll 1
    for (int g = 0; g < Shape::kCols / 32; ++g) load_box(memory.residual() + g * Memory::kResidualBox, map, n + g * 32, m, full);
  }
}

// The ring as a consumer sees it.
template <int kStages>
struct RingPosition {
  uint32_t stage, parity;
  __device__ explicit RingPosition(uint32_t blocks) : stage(blocks % kStages), parity(blocks / kStages & 1) {}
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Products of the block of K in a stage.
template <class Shape, class In, class Memory>
__device__ __forceinline__ void multiply_block(SumOf<In> (&d)[Shape::kMma][Shape::kCols / 2], const Memory& memory, uint32_t stage, bool accumulate) {
  const uint64_t x = operand_descriptor(memory.x(stage)), w = operand_descriptor(memory.x(stage) + Memory::kXBytes);
#pragma unroll
  for (int i = 0; i < Shape::kMma; ++i) pin(d[i]);
  begin_products();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < Shape::kMma; ++i) {
      Products<In, Shape::kCols>::shared(d[i], x + i * kDescriptorStep64Rows + k * kDescriptorStepK, w + k * kDescriptorStepK, accumulate || k > 0);
    }
  }
  commit_products();
}

// All products of a tile but those of the last block, which may still be under way (`finish_products`).
template <class Shape, class In, class Memory>
struct TileProducts {
  using Sum = SumOf<In>;
  using Sums = Sum[Shape::kMma][Shape::kCols / 2];
  Sums d;
  Sums part[2];  // kPromoted; else no registers are taken for it

  __device__ __forceinline__ void multiply(const GemmParams& p, const Memory& memory, RingPosition<Memory::kStages>& at, int thread) {
    uint32_t last = 0;
    if constexpr (Shape::kPromoted) {
      int kb = 0;
#pragma unroll 1
      for (; kb + 1 < p.k_blocks; kb += 2) {  // two at a time: registers have no index; none under way at the end, which ptxas would serialise
        start(part[0], memory, at);
        last = step(at);
        start(part[1], memory, at);
        wait_products<1>();
        add(part[0], kb == 0, memory, last, thread);  // while the second block's are made
        last = step(at);
        wait_products<0>();
        add(part[1], false, memory, last, thread);
      }
      if (kb < p.k_blocks) {
        start(part[0], memory, at);
        last = step(at);
        wait_products<0>();
        add(part[0], kb == 0, memory, last, thread);
      }
    } else {
      for (int kb = 0; kb < p.k_blocks; ++kb) {
        wait(memory.full(at.stage), at.parity);
        multiply_block<Shape, In>(d, memory, at.stage, kb > 0);
        wait_products<1>();  // the block before this one is done: its stage is free
        if (kb > 0 && thread == 0) arrive(memory.empty(last));
        last = step(at);
      }
    }
  }
  // Frees the last block's stage, too.
  __device__ __forceinline__ void finish_products(const Memory& memory, const RingPosition<Memory::kStages>& at, int thread) {
    if constexpr (Shape::kPromoted) return;
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < Shape::kMma; ++i) pin(d[i]);
    if (thread == 0) arrive(memory.empty((at.stage + Memory::kStages - 1) % Memory::kStages));
  }

 private:
  static __device__ __forceinline__ uint32_t step(RingPosition<Memory::kStages>& at) {
    const uint32_t stage = at.stage;
    at.next();
    return stage;
  }
  static __device__ __forceinline__ void start(Sums& to, const Memory& memory, const RingPosition<Memory::kStages>& at) {
    wait(memory.full(at.stage), at.parity);
    multiply_block<Shape, In>(to, memory, at.stage, false);
  }
  __device__ __forceinline__ void add(Sums& from, bool first, const Memory& memory, uint32_t stage, int thread) {
    pin(from[0]);
    if (thread == 0) arrive(memory.empty(stage));
#pragma unroll
    for (int i = 0; i < Shape::kCols / 2; ++i) d[0][i] = first ? from[0][i] : d[0][i] + from[0][i];
  }
};

// What is compiled apart, so that no branch stands between the numbers: nothing but quantization, a residual, an activation in f32, one in f16 for e4m3 results, a gate, and
// whatever else the program may hold.
enum class ProgramKind : uint8_t { kPlain, kResidual, kActivation, kInHalf, kGate, kAny };

// The program on four numbers (columns 0, 1, 8, 9 of the products, neighbours in y) in each of kRows rows, v = sum * factor + bias on entry; packed words of y on return. One warp
// per scheduler runs this, so a thread's own numbers must hide its latencies: each step goes over all of them before the next one. add: the residual.
template <class Out, ProgramKind kProgram, int kRows>
__device__ __forceinline__ void finish_fours(uint32_t (&y)[kRows][sizeof(Out)], float (&v)[kRows * 4], const float4& gains, const uint2 (&add)[kRows], const GemmParams& p,
                                             float unit) {
  constexpr bool kByte = sizeof(Out) == 1;
  if constexpr (kProgram == ProgramKind::kInHalf) {
    uint32_t pairs[kRows * 2];
    activate_half_pairs(p.act, v, __float2half2_rn(unit), pairs);
#pragma unroll
    for (int r = 0; r < kRows; ++r) y[r][0] = pack_e4m3(pairs[2 * r], pairs[2 * r + 1]);
  } else {
    if constexpr (kProgram == ProgramKind::kActivation || kProgram == ProgramKind::kAny) {
      p.act.template run<kRows * 2>(v);  // half of them at a time: registers
      p.act.template run<kRows * 2>(v + kRows * 2);
#pragma unroll
      for (int i = 0; i < kRows * 4; ++i) {
        if (kByte) v[i] *= unit;
        if (kProgram == ProgramKind::kAny) v[i] *= i % 4 == 0 ? gains.x : i % 4 == 1 ? gains.y : i % 4 == 2 ? gains.z : gains.w;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float* row = v + r * 4;
      if constexpr (!kByte && (kProgram == ProgramKind::kResidual || kProgram == ProgramKind::kAny)) {
        const float2 low = std::is_same_v<Out, __half> ? cuda::decode_half_pair(add[r].x) : cuda::decode_bf16_pair(add[r].x);
        const float2 high = std::is_same_v<Out, __half> ? cuda::decode_half_pair(add[r].y) : cuda::decode_bf16_pair(add[r].y);
        row[0] += low.x, row[1] += low.y, row[2] += high.x, row[3] += high.y;
      }
      if constexpr (!kByte) {
        y[r][0] = cuda::pack_pair<Out>(row[0], row[1]), y[r][1] = cuda::pack_pair<Out>(row[2], row[3]);
      } else {
        y[r][0] = std::is_same_v<Out, int8_t> ? cuda::encode_i8_four(row) : pack_e4m3(row[0], row[1], row[2], row[3]);
      }
    }
  }
}

template <class Shape, class In, class Out>
struct Consumer {
  using Memory = GemmMemory<Shape, Out>;
  using Sums = SumOf<In>[Shape::kMma][Shape::kCols / 2];

  const GemmParams& p;
  const Memory memory;
  const int consumer, thread;

  template <ProgramKind kProgram>
  static constexpr bool kMayAdd = sizeof(Out) == 2 && (kProgram == ProgramKind::kResidual || kProgram == ProgramKind::kAny);

  // Factors and biases of four of a thread's columns.
  struct Columns {
    uint4 pair[2];
    __device__ __forceinline__ float factor(int i) const { return __uint_as_float(i % 2 == 0 ? pair[i / 2].x : pair[i / 2].z); }
    __device__ __forceinline__ float bias(int i) const { return __uint_as_float(i % 2 == 0 ? pair[i / 2].y : pair[i / 2].w); }
  };
  static __device__ __forceinline__ Columns load_columns(uint32_t from) { return {cuda::load_shared_four(from), cuda::load_shared_four(from + 64)}; }

  // Results of a tile. Thanks to the order of w's rows a thread has eight neighbouring columns of each 32: four threads fill whole sectors of memory.
  template <ProgramKind kProgram>
  __device__ __forceinline__ void finish(Sums& d, float unit) const {
    constexpr int kRows = Shape::kMma * 2, kFours = Shape::kCols / 16;
    int lane = thread;
    asm volatile("" : "+r"(lane));  // so that nothing below is made before the products and kept: there are no registers for it
    const uint32_t table = memory.table(consumer), column_table = table + lane % 4 * 16, gain_table = table + Shape::kCols * 8 + lane % 4 * 8;
    constexpr int kShare = kProgram == ProgramKind::kGate ? 2 : 1;  // columns of sums to a result
    const uint2 tile = cuda::load_shared_pair(table + Shape::kCols * 12);
    const int first_row = static_cast<int>(tile.x) + result_row(lane), first_col = static_cast<int>(tile.y) / kShare + lane % 4 * 8;
    const int rows_left = p.m - first_row, cols_left = p.cols - first_col;
    Out* const first = static_cast<Out*>(p.y) + int64_t{first_row} * p.cols + first_col;
    const uint32_t residual = memory.residual() + swizzled_offset<64>(result_row(lane), lane % 4 * 16);
    float v[kRows * 4];
    uint32_t y[2][kRows][sizeof(Out)];
    Columns columns = load_columns(column_table);
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const Columns now = columns;
      if (four + 1 < kFours) columns = load_columns(column_table + (four + 1) * 128);
      uint2 add[kRows];
      if constexpr (kMayAdd<kProgram>) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const uint32_t from = residual + four / 2 * Memory::kResidualBox + (r / 2 * 64 + r % 2 * 8) * 64 + four % 2 * 8;
          add[r] = kProgram == ProgramKind::kResidual || p.residual ? cuda::load_shared_pair_here(from) : uint2{};
        }
      }
      float4 gains{1.0f, 1.0f, 1.0f, 1.0f};
      if (kProgram == ProgramKind::kAny && p.gain != nullptr) {
        const uint2 low = cuda::load_shared_pair(gain_table + four * 64), high = cuda::load_shared_pair(gain_table + four * 64 + 32);
        gains = {__uint_as_float(low.x), __uint_as_float(low.y), __uint_as_float(high.x), __uint_as_float(high.y)};
      }
      const auto affine = [&](int r, int c) { return fmaf(static_cast<float>(d[r / 2][four * 8 + c / 2 * 4 + r % 2 * 2 + c % 2]), now.factor(c), now.bias(c)); };
      if constexpr (kProgram == ProgramKind::kGate) {  // two results of each row
        float gate[kRows * 2];
#pragma unroll
        for (int i = 0; i < kRows * 2; ++i) gate[i] = affine(i / 2, i % 2);
        p.act.template run<kRows * 2>(gate);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float low = gate[r * 2] * affine(r, 2), high = gate[r * 2 + 1] * affine(r, 3);
          if constexpr (sizeof(Out) == 2) {
            y[four / 2 % 2][r][four % 2] = cuda::pack_pair<Out>(low, high);
          } else {
            v[r * 4 + four % 2 * 2] = low, v[r * 4 + four % 2 * 2 + 1] = high;
          }
        }
        if (four % 2 == 0) continue;
      } else {
#pragma unroll
        for (int i = 0; i < kRows * 4; ++i) v[i] = affine(i / 4, i % 4);
      }
      const int done = four / kShare;  // fours of results
      if constexpr (kShare == 1 || sizeof(Out) == 1) finish_fours<Out, kProgram, kRows>(y[done % 2], v, gains, add, p, unit);
      if (done % 2 == 0) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = r / 2 * 64 + r % 2 * 8, col = done / 2 * 32;
        if (row >= rows_left || col >= cols_left) continue;
        Out* to = first + int64_t{p.cols * row} + col;
        if constexpr (sizeof(Out) == 1) {
          *reinterpret_cast<uint2*>(to) = {y[0][r][0], y[1][r][0]};
        } else {
          *reinterpret_cast<uint4*>(to) = {y[0][r][0], y[0][r][1], y[1][r][0], y[1][r][1]};
        }
      }
    }
    __syncwarp();
    if (thread % 32 == 0) {
      arrive(memory.table_empty(consumer));
      if (kMayAdd<kProgram> && p.residual) arrive(memory.residual_empty());
    }
  }

  template <ProgramKind kProgram>
  __device__ __forceinline__ void run(float unit) const {
    // Named barriers 1 and 2: whose turn it is to multiply.
    const int turn = 1 + consumer, other_turn = 2 - consumer;
    TileProducts<Shape, In, Memory> products;
    if (consumer == 1) signal_threads(other_turn, 2 * kWarpgroup);  // the first turn is consumer 0's
    // Everything follows from the tile's number in this block, so that nothing else is kept beside the sums.
    for (uint32_t tile = consumer; tile_exists(tile); tile += 2) {
      RingPosition<Memory::kStages> at(tile * p.k_blocks);
      sync_threads(turn, 2 * kWarpgroup);
      products.multiply(p, memory, at, thread);
      signal_threads(other_turn, 2 * kWarpgroup);
      wait(memory.table_full(consumer), tile >> 1 & 1);
      if (kMayAdd<kProgram> && p.residual) wait(memory.residual_full(consumer), tile >> 1 & 1);
      products.finish_products(memory, at, thread);
      finish<kProgram>(products.d, unit);
    }
  }
  __device__ __forceinline__ bool tile_exists(uint32_t tile) const { return blockIdx.x + tile * p.blocks < p.tiles; }

  __device__ __forceinline__ void run_program() const {
    constexpr bool kByte = sizeof(Out) == 1, kE4m3 = std::is_same_v<Out, __nv_fp8_e4m3>;
    const float unit = kByte ? 1.0f / *p.y_scale : 1.0f;
    if constexpr (!Shape::kPromoted && (kByte || Shape::kRunsAny)) {
      if (p.gated) return run<ProgramKind::kGate>(unit);
    }
    if (!p.act.present) {
      if (!kByte && p.residual) return run<kByte ? ProgramKind::kPlain : ProgramKind::kResidual>(unit);
      return run<ProgramKind::kPlain>(unit);
    }
    if constexpr (Shape::kRunsAny) {
      if (p.gain != nullptr || p.residual) return run<ProgramKind::kAny>(unit);
    }
    if constexpr (kE4m3) {
      if (unit > 0x1p-7f && unit < 0x1p10f) return run<ProgramKind::kInHalf>(unit);  // activate_half_pairs
    }
    run<ProgramKind::kActivation>(unit);
  }
};

template <class Shape, class In, class Out>
__global__ void __launch_bounds__(Shape::kThreads, 1) gemm(const __grid_constant__ GemmMaps maps, const __grid_constant__ GemmParams p) {
  using Memory = GemmMemory<Shape, Out>;
  extern __shared__ __align__(1024) uint8_t shared[];  // kSwizzleAtomBytes
  const Memory memory{cuda::shared_address(shared)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Memory::kStages; ++i) {
      init_barrier(memory.full(i), 2);
      init_barrier(memory.empty(i), 1);
    }
    for (int i = 0; i < Shape::kConsumers; ++i) {
      init_barrier(memory.table_full(i), p.residual ? 32 : 64);
      init_barrier(memory.table_empty(i), kWarpgroup / 32);
      init_barrier(memory.residual_full(i), 1);
    }
    init_barrier(memory.residual_empty(), kWarpgroup / 32);
    fence_barrier_init();
    prefetch(&maps.x);
    prefetch(&maps.w);
    cuda::let_next_kernel_start();
  }
  __syncthreads();
  // Only x, the residual and y belong to other kernels: the weight's first tiles are loaded while the kernel before this one still runs. Whoever stores y has waited
  // for products with x.
  const int warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    give_registers<Shape::kSpareRegisters>();
    if (threadIdx.x == 0) {
      cuda::wait_for_earlier_kernels();
      load_operand<Shape, In, Memory, true>(&maps.x, p, memory);
    }
    if (threadIdx.x == 32) load_operand<Shape, In, Memory, false>(&maps.w, p, memory);
    // Bias and gain have the type of 16-bit results; beside 8-bit operands and results they are f16.
    using Vector = std::conditional_t<std::is_same_v<Out, __nv_bfloat16>, __nv_bfloat16, __half>;
    if (threadIdx.x / 32 == 2 || (threadIdx.x / 32 == 3 && !p.residual)) load_tables<Shape, In, Vector>(p, memory);
    if (threadIdx.x == 96 && p.residual) {
      cuda::wait_for_earlier_kernels();
      load_residuals<Shape>(&maps.residual, p, memory);
    }
  } else {
    take_registers<Shape::kRegisters>();
    Consumer<Shape, In, Out>{p, memory, warpgroup - 1, static_cast<int>(threadIdx.x % kWarpgroup)}.run_program();
  }
}

}  // namespace tessera::sm90
