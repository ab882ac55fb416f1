// SPDX-License-Identifier: Apache-2.0
// The normal mainloop on Hopper: y[m, n] = program(sum_k x[m, k] * w[n, k]), both operands K-major, by TMA into a ring of stages, products by wgmma. In each of the persistent
// blocks one warpgroup loads and two take tiles in turns: while one multiplies, the other runs the program on its finished tile and stores it, so the program costs no
// tensor-core time as long as it is shorter than the products. docs/design/0013 has what was tried and measured.
#pragma once

#include "archs/cuda/instructions.cuh"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "ir/program.h"
#include "tiles/activation_fast.h"
#include "tiles/cuda_elements.cuh"
#include "tiles/gated_columns.h"

namespace tessera::sm90 {

// kPromoted: FP8 sums, of which the tensor cores keep about 13 bits, are added to f32 ones after every block of K (128 products). While one block's are added, the next
// block's may be made: three sets of sums, which fit the registers for 64 x 128.
template <int kCols_, bool kPromoted_ = false>
struct GemmShape {
  static constexpr int kCols = kCols_;  // of a tile: 128, 192
  static constexpr bool kPromoted = kPromoted_;
  static constexpr int kMma = kPromoted ? 1 : 2;                             // groups of 64 rows of a tile
  static constexpr int kSums = kMma * kCols / 2 * (kPromoted ? 3 : 1);        // registers of a thread
  static constexpr int kRows = 64 * kMma, kConsumers = 2, kThreads = 128 * (1 + kConsumers);
  // Registers: a thread starts with 168, the loading warpgroup gives most of its own to the others.
  static constexpr int kSpareRegisters = kSums > 128 ? 24 : 40, kRegisters = (3 * 168 - kSpareRegisters) / 2;
};

constexpr int kWarpgroup = 128;
constexpr int kBoxRows = 64, kBoxCols = 64;  // results travel in boxes
constexpr int kGatedBoxCols = kBoxCols / 2;   // as a gate leaves of as many columns of sums
constexpr int kSharedLimit = 232448;

// Shared memory of a block: stages of x and w, per consumer boxes of results and a table of its tile's columns, barriers.
template <class Shape, class In, class Out>
struct GemmMemory {
  static constexpr int kXBytes = Shape::kRows * 128, kWBytes = Shape::kCols * 128, kStageBytes = kXBytes + kWBytes;
  static constexpr int kBoxes = Shape::kMma * (Shape::kCols / kBoxCols), kBoxBytes = kBoxRows * kBoxCols * static_cast<int>(sizeof(Out));
  // Boxes in memory at a time: all, or those of 64 rows.
  static constexpr int kBuffers = Shape::kConsumers * kBoxes * kBoxBytes > 65536 ? Shape::kCols / kBoxCols : kBoxes;
  static constexpr int kColumnBytes = Shape::kCols * 12;  // factor and bias of each column, then the gains
  static constexpr int kFixedBytes = Shape::kConsumers * (kBuffers * kBoxBytes + kColumnBytes);
  static constexpr int kStages = (kSharedLimit - kFixedBytes - 256) / kStageBytes < 6 ? (kSharedLimit - kFixedBytes - 256) / kStageBytes : 6;
  static constexpr int kBarriers = 2 * kStages + Shape::kConsumers * (kBuffers + 2);
  static constexpr int kBytes = kStages * kStageBytes + kFixedBytes + kBarriers * 8;
  static_assert(kStages >= 3 && kBytes <= kSharedLimit && kBarriers * 8 <= 256);

  uint32_t base;
  uint8_t* bytes;  // the same place
  __device__ uint8_t* at(uint32_t address) const { return bytes + (address - base); }
  __device__ uint32_t x(int stage) const { return base + stage * kStageBytes; }
  __device__ uint32_t box(int consumer, int buffer) const { return base + kStages * kStageBytes + (consumer * kBuffers + buffer) * kBoxBytes; }
  __device__ uint32_t columns(int consumer) const { return base + kStages * kStageBytes + Shape::kConsumers * kBuffers * kBoxBytes + consumer * kColumnBytes; }
  __device__ uint32_t full(int stage) const { return base + kBytes - kBarriers * 8 + stage * 8; }
  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }
  __device__ uint32_t residual(int consumer, int buffer) const { return full(2 * kStages + consumer * kBuffers + buffer); }
  __device__ uint32_t columns_full(int consumer) const { return full(2 * kStages + Shape::kConsumers * kBuffers + consumer); }
  __device__ uint32_t columns_empty(int consumer) const { return columns_full(Shape::kConsumers + consumer); }
};

struct GemmMaps {
  CUtensorMap x, w, y, residual;
};

struct GemmParams {
  int tiles_m, tiles_n, k_blocks, n;  // n: rows of w, columns of sums
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
  int index = static_cast<int>(blockIdx.x);
  __device__ bool done(const GemmParams& p) const { return index >= p.tiles_m * p.tiles_n; }
  __device__ void next() { index += static_cast<int>(gridDim.x); }
  __device__ int m(const GemmParams& p) const { return (p.by_rows ? index / p.tiles_n : index % p.tiles_m) * Shape::kRows; }
  __device__ int n(const GemmParams& p) const { return (p.by_rows ? index % p.tiles_n : index / p.tiles_m) * Shape::kCols; }
};

// One thread loads x, another w: each has few enough values to run in the 24 registers that the consumers leave.
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

// Two warps bring the columns' table of the tile after this one, so that no consumer waits for them: v = sum * factor + bias, in units of y's
// scale where no activation follows, halved where one does (activation_fast.h). A gate's argument is halved, its other factor in units of y's scale.
template <class Shape, class In, class Vector, class Memory>
__device__ void load_columns(const GemmParams& p, const Memory& memory) {
  const int lane = threadIdx.x % 64;
  const float y_unit = p.y_scale != nullptr ? 1.0f / *p.y_scale : 1.0f, x_scale = p.x_scale != nullptr ? *p.x_scale : 1.0f;
  uint32_t consumer = 0, parity = 1;
  for (TileWalk<Shape> at; !at.done(p); at.next()) {
    const int n = at.n(p);
    wait(memory.columns_empty(consumer), parity);
    uint8_t* columns = memory.at(memory.columns(consumer));
#pragma unroll 1
    for (int i = lane; i < Shape::kCols; i += 64) {
      const bool exists = n + i < p.n;
      const int col = p.gated ? gated_row(n + i, p.n) : n + i;
      const float unit = p.act.present && !(p.gated && gated_column(n + i).half == 1) ? 0.5f : y_unit;
      float factor = x_scale * unit, bias = 0;
      if (exists && sizeof(In) == 1) factor *= p.w_scale[col * p.w_scale_stride];
      if (exists && p.bias != nullptr) bias = static_cast<float>(static_cast<const Vector*>(p.bias)[col]) * unit;
      reinterpret_cast<float2*>(columns)[i] = {factor, bias};
      if (p.gain != nullptr) reinterpret_cast<float*>(columns + Shape::kCols * 8)[i] = exists ? static_cast<float>(static_cast<const Vector*>(p.gain)[col]) : 1.0f;
    }
    arrive(memory.columns_full(consumer));
    if (++consumer == Shape::kConsumers) consumer = 0, parity ^= 1;
  }
}

// The ring as a consumer sees it.
template <int kStages>
struct RingPosition {
  uint32_t stage = 0, parity = 0;
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  __device__ void skip(uint32_t blocks) {
    const uint32_t to = stage + blocks;
    stage = to % kStages;
    parity ^= to / kStages & 1;
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

// What is compiled apart: nothing between sum and quantization, an activation in f32, one in f16 for e4m3 results, or a gate.
enum class ProgramKind : uint8_t { kPlain, kActivation, kInHalf, kGate };

// Two neighbours of a row, as codes or 16-bit numbers.
template <class Out>
__device__ __forceinline__ void store_pair(uint8_t* to, float a, float b) {
  if constexpr (sizeof(Out) == 2) {
    *reinterpret_cast<uint32_t*>(to) = cuda::pack_pair<Out>(a, b);
  } else {
    *reinterpret_cast<uint16_t*>(to) = std::is_same_v<Out, int8_t> ? cuda::encode_i8_pair(a, b) : static_cast<uint16_t>(cuda::encode_e4m3_pair(a, b));
  }
}

// A gate over 64 x 64 sums, eight columns of its argument and eight that it multiplies in turns, and 64 x 32 results in shared memory. kPairs of such groups at a time; the
// columns of the next are loaded before the stores, which the compiler must take for writes to the same place.
template <class In, class Out, int kPairs>
__device__ __forceinline__ void finish_gated_box(const SumOf<In>* d, const GemmParams& p, const float2* columns, uint8_t* box) {
  constexpr int kAll = kBoxCols / kGatePair;
  const int thread = threadIdx.x % kWarpgroup, row = result_row(thread), col = result_col(thread);
  const auto load_columns = [&](int group) { return *reinterpret_cast<const float4*>(columns + group * kGateGroup + col); };  // factor and bias of two columns
  float4 next[2 * kPairs];
#pragma unroll
  for (int i = 0; i < 2 * kPairs; ++i) next[i] = load_columns(i);
#pragma unroll
  for (int first = 0; first < kAll; first += kPairs) {
    float y[kPairs][2][2];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const SumOf<In>*gate = d + (first + j) * 8, *up = gate + 4;
      const float4 g = next[2 * j], u = next[2 * j + 1];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        y[j][h][0] = p.act(fmaf(static_cast<float>(gate[h * 2]), g.x, g.y)) * fmaf(static_cast<float>(up[h * 2]), u.x, u.y);
        y[j][h][1] = p.act(fmaf(static_cast<float>(gate[h * 2 + 1]), g.z, g.w)) * fmaf(static_cast<float>(up[h * 2 + 1]), u.z, u.w);
      }
    }
    if (first + kPairs < kAll) {
#pragma unroll
      for (int i = 0; i < 2 * kPairs; ++i) next[i] = load_columns(2 * (first + kPairs) + i);
    }
#pragma unroll
    for (int i = 0; i < kPairs * 2; ++i) {
      const int at = (first + i / 2) * kGateGroup + col;
      store_pair<Out>(box + swizzled_offset<kGatedBoxCols * sizeof(Out)>(row + i % 2 * 8, at * sizeof(Out)), y[i / 2][i % 2][0], y[i / 2][i % 2][1]);
    }
  }
}

// The program on a box of 64 x 64 results in registers, then into shared memory where the copy engine takes them (and where it left the
// residual, place for place). Each step goes over kGroups groups of
// eight columns: few warps per scheduler run this, so latencies hide behind the thread's own numbers.
template <class In, class Out, ProgramKind kProgram, int kGroups>
__device__ __forceinline__ void finish_box(const SumOf<In>* d, const GemmParams& p, const float2* columns, const float* gains, uint8_t* box, float unit) {
  constexpr bool kByte = sizeof(Out) == 1;
  const int thread = threadIdx.x % kWarpgroup, row = result_row(thread), col = result_col(thread);
  const auto place = [&](int j, int h) { return box + swizzled_offset<kBoxCols * sizeof(Out)>(row + h * 8, (j * 8 + col) * sizeof(Out)); };
  const auto load_columns = [&](int j) { return *reinterpret_cast<const float4*>(columns + j * 8 + col); };  // factor and bias of two columns
  constexpr bool kAhead = kGroups < 4;  // a short batch has its columns loaded during the one before
  float4 next[kGroups];
#pragma unroll
  for (int j = 0; j < kGroups; ++j) next[j] = load_columns(j);
#pragma unroll
  for (int first = 0; first < kBoxCols / 8; first += kGroups) {
    float v[kGroups][2][2];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const float4 c = kAhead || first == 0 ? next[j] : load_columns(first + j);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        v[j][h][0] = fmaf(static_cast<float>(d[(first + j) * 4 + h * 2]), c.x, c.y);
        v[j][h][1] = fmaf(static_cast<float>(d[(first + j) * 4 + h * 2 + 1]), c.z, c.w);
      }
    }
    if (kAhead && first + kGroups < kBoxCols / 8) {  // before this batch's stores, which the compiler must take for writes to the same place
#pragma unroll
      for (int j = 0; j < kGroups; ++j) next[j] = load_columns(first + kGroups + j);
    }
    if constexpr (kProgram == ProgramKind::kInHalf) {
      const __half2 unit_pair = __float2half2_rn(unit);
#pragma unroll
      for (int i = 0; i < kGroups * 2; ++i) {
        *reinterpret_cast<uint16_t*>(place(first + i / 2, i % 2)) = activate_e4m3_pair(p.act, v[i / 2][i % 2][0], v[i / 2][i % 2][1], unit_pair);
      }
    } else {
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) {
      float& x = v[i / 4][i / 2 % 2][i % 2];
      if constexpr (kProgram == ProgramKind::kActivation) x = p.act(x);
      if (kByte && kProgram == ProgramKind::kActivation) x *= unit;
    }
    if (p.gain != nullptr) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const float2 g = *reinterpret_cast<const float2*>(gains + (first + j) * 8 + col);
#pragma unroll
        for (int h = 0; h < 2; ++h) v[j][h][0] *= g.x, v[j][h][1] *= g.y;
      }
    }
    if constexpr (kByte) {
#pragma unroll
      for (int i = 0; i < kGroups * 2; ++i) {
        const float(&pair)[2] = v[i / 2][i % 2];
        *reinterpret_cast<uint16_t*>(place(first + i / 2, i % 2)) =
            std::is_same_v<Out, int8_t> ? cuda::encode_i8_pair(pair[0], pair[1]) : static_cast<uint16_t>(cuda::encode_e4m3_pair(pair[0], pair[1]));
      }
    } else {
      if (p.residual) {
        uint32_t pair[kGroups * 2];
#pragma unroll
        for (int i = 0; i < kGroups * 2; ++i) pair[i] = *reinterpret_cast<const uint32_t*>(place(first + i / 2, i % 2));
#pragma unroll
        for (int i = 0; i < kGroups * 2; ++i) {
          const float2 add = std::is_same_v<Out, __half> ? cuda::decode_half_pair(pair[i]) : cuda::decode_bf16_pair(pair[i]);
          v[i / 2][i % 2][0] += add.x, v[i / 2][i % 2][1] += add.y;
        }
      }
#pragma unroll
      for (int i = 0; i < kGroups * 2; ++i) *reinterpret_cast<uint32_t*>(place(first + i / 2, i % 2)) = cuda::pack_pair<Out>(v[i / 2][i % 2][0], v[i / 2][i % 2][1]);
    }
    }
  }
}

template <class Shape, class In, class Out>
struct Consumer {
  using Memory = GemmMemory<Shape, In, Out>;
  using Sums = SumOf<In>[Shape::kMma][Shape::kCols / 2];
  static constexpr int kBuffers = Memory::kBuffers, kBoxes = Memory::kBoxes, kGroups = Shape::kCols / kBoxCols;

  const GemmMaps& maps;
  const GemmParams& p;
  const Memory memory;
  const int consumer, thread, own;  // own: named barrier of this warpgroup

  __device__ __forceinline__ void load_residual(int box, int m, int n) const {
    const uint32_t barrier = memory.residual(consumer, box % kBuffers);
    arrive_expecting(barrier, Memory::kBoxBytes);
    load_box(memory.box(consumer, box % kBuffers), &maps.residual, n + box % kGroups * kBoxCols, m + box / kGroups * kBoxRows, barrier);
  }
  template <ProgramKind kProgram>
  __device__ __forceinline__ void store(int box, int m, int n) const {
    constexpr int kShare = kProgram == ProgramKind::kGate ? 2 : 1;  // columns of sums to a result
    store_box(&maps.y, (n + box % kGroups * kBoxCols) / kShare, m + box / kGroups * kBoxRows, memory.box(consumer, box % kBuffers));
    commit_stores();
  }

  // The program on a tile. Straight code: a loop over the boxes would have to move the sums of later ones down, which is slower.
  template <ProgramKind kProgram>
  __device__ __forceinline__ void finish(Sums& d, int m, int n, uint32_t visits, float unit) const {
    constexpr int kBatch = Shape::kRegisters - Shape::kSums > 80 ? 4 : 2;  // groups under way: as there are registers beside the sums
    constexpr int kTogether = kBuffers == kBoxes ? Shape::kMma : 1;                            // groups of 64 rows that are stored at once
    const uint8_t* columns = memory.at(memory.columns(consumer));
#pragma unroll
    for (int rows = 0; rows < Shape::kMma; ++rows) {
      if (kBuffers < kBoxes && rows > 0 && !p.residual) {  // these boxes take the places of those before
        if (thread == 0) wait_stores_read();
        sync_threads(own, kWarpgroup);
      }
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int i = rows * kGroups + group, buffer = i % kBuffers;
        if (p.residual) wait(memory.residual(consumer, buffer), (visits * (kBoxes / kBuffers) + i / kBuffers) & 1);
        const float2* columns_here = reinterpret_cast<const float2*>(columns) + group * kBoxCols;
        if constexpr (kProgram == ProgramKind::kGate) {
          finish_gated_box<In, Out, kBatch / 2>(d[rows] + group * (kBoxCols / 2), p, columns_here, memory.at(memory.box(consumer, buffer)));
        } else {
          finish_box<In, Out, kProgram, kBatch>(d[rows] + group * (kBoxCols / 2), p, columns_here,
                                                reinterpret_cast<const float*>(columns + Shape::kCols * 8) + group * kBoxCols, memory.at(memory.box(consumer, buffer)), unit);
        }
        if (p.residual) {  // each box at once: its place is wanted for the residual of one further on
          fence_for_copy_engine();
          sync_threads(own, kWarpgroup);
          if (thread == 0) {
            store<kProgram>(i, m, n);
            if (kBuffers < kBoxes && i > 0 && i - 1 + kBuffers < kBoxes) {
              wait_stores_read<1>();
              load_residual(i - 1 + kBuffers, m, n);
            }
          }
        }
      }
      if (!p.residual && (rows + 1) % kTogether == 0) {
        fence_for_copy_engine();
        sync_threads(own, kWarpgroup);
        if (thread == 0) {
#pragma unroll
          for (int i = (rows + 1 - kTogether) * kGroups; i < (rows + 1) * kGroups; ++i) store<kProgram>(i, m, n);
        }
      }
    }
    if (thread == 0) arrive(memory.columns_empty(consumer));  // after the last barrier: everybody has read them
  }

  template <ProgramKind kProgram>
  __device__ __forceinline__ void run(float unit) const {
    // Named barriers 1 and 2: whose turn it is to multiply.
    const int turn = 1 + consumer, other_turn = 2 - consumer;
    TileProducts<Shape, In, Memory> products;
    RingPosition<Memory::kStages> at;
    TileWalk<Shape> tile;
    if (consumer == 1) {
      signal_threads(other_turn, 2 * kWarpgroup);  // the first turn is consumer 0's
      tile.next(), at.skip(p.k_blocks);
    }
    if (thread == 0 && p.residual) cuda::wait_for_earlier_kernels();
    for (uint32_t visits = 0; !tile.done(p); ++visits) {
      const int m = tile.m(p), n = tile.n(p);
      if (thread == 0) {
        wait_stores_read();  // of the tile before: its places are free
        if (p.residual) {
#pragma unroll
          for (int i = 0; i < kBuffers; ++i) load_residual(i, m, n);
        }
      }
      sync_threads(turn, 2 * kWarpgroup);
      products.multiply(p, memory, at, thread);
      signal_threads(other_turn, 2 * kWarpgroup);
      wait(memory.columns_full(consumer), visits & 1);
      products.finish_products(memory, at, thread);
      if (!p.residual) sync_threads(own, kWarpgroup);  // the first places are free
      finish<kProgram>(products.d, m, n, visits, unit);
      tile.next(), tile.next();
      at.skip(p.k_blocks);
    }
    if (thread == 0) wait_stores_read();
  }

  __device__ __forceinline__ void run_program() const {
    const float unit = sizeof(Out) == 1 ? 1.0f / *p.y_scale : 1.0f;
    if constexpr (!Shape::kPromoted) {
      if (p.gated) return run<ProgramKind::kGate>(unit);
    }
    if (!p.act.present) {
      run<ProgramKind::kPlain>(unit);
    } else if (std::is_same_v<Out, __nv_fp8_e4m3> && p.gain == nullptr && unit > 0x1p-13f && unit < 0x1p12f && p.act.c[3] != 0) {
      // In f16: the scale lies well inside its range, no gain follows, and where q^2 overflows, a last term makes u infinite too, not NaN.
      run<std::is_same_v<Out, __nv_fp8_e4m3> ? ProgramKind::kInHalf : ProgramKind::kActivation>(unit);
    } else {
      run<ProgramKind::kActivation>(unit);
    }
  }
};

template <class Shape, class In, class Out>
__global__ void __launch_bounds__(Shape::kThreads, 1) gemm(const __grid_constant__ GemmMaps maps, const __grid_constant__ GemmParams p) {
  using Memory = GemmMemory<Shape, In, Out>;
  extern __shared__ __align__(1024) uint8_t shared[];  // kSwizzleAtomBytes
  const Memory memory{cuda::shared_address(shared), shared};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Memory::kStages; ++i) {
      init_barrier(memory.full(i), 2);
      init_barrier(memory.empty(i), 1);
    }
    for (int i = 0; i < Shape::kConsumers * Memory::kBuffers; ++i) init_barrier(memory.residual(0, i), 1);
    for (int i = 0; i < Shape::kConsumers; ++i) {
      init_barrier(memory.columns_full(i), 64);
      init_barrier(memory.columns_empty(i), 1);
    }
    fence_barrier_init();
    prefetch(&maps.x);
    prefetch(&maps.w);
    prefetch(&maps.y);
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
    if (threadIdx.x >= 64) load_columns<Shape, In, Vector>(p, memory);
  } else {
    take_registers<Shape::kRegisters>();
    Consumer<Shape, In, Out>{maps, p, memory, warpgroup - 1, static_cast<int>(threadIdx.x % kWarpgroup), 2 + warpgroup}.run_program();
  }
}

}  // namespace tessera::sm90
