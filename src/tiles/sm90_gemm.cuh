// SPDX-License-Identifier: Apache-2.0
// The normal mainloop on Hopper: y[m, n] = program(sum_k x[m, k] * w[n, k]), both operands K-major, by TMA into a ring of stages, products by wgmma. In each of the persistent
// blocks one warpgroup loads and one or two teams of warpgroups multiply and finish.
// Teams take tiles in turns: while one multiplies, the other runs the program on its finished tile and stores it, so the program costs no tensor-core time as long as it
// is shorter than the products. A team of two warpgroups runs it twice as fast, in half the registers for sums.
// Two blocks of a cluster share x (neighbouring n) or w (neighbouring m): each loads half of it for both. What limits a product here is the L2: docs/design/0013.
#pragma once

#include "archs/cuda/instructions.cuh"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "ir/program.h"
#include "tiles/activation_fast.h"
#include "tiles/cuda_elements.cuh"

namespace tessera::sm90 {

enum class Share : uint8_t { kNone, kX, kW };

template <int kMma_, int kCols_, int kTeams_, int kTeamSize_, Share kShare_>
struct GemmShape {
  static constexpr int kMma = kMma_;    // groups of 64 rows of one warpgroup
  static constexpr int kCols = kCols_;  // of a tile: 64, 128, 192, 256
  static constexpr int kTeams = kTeams_, kTeamSize = kTeamSize_, kConsumers = kTeams * kTeamSize;
  static constexpr Share kShare = kShare_;
  static constexpr int kCluster = kShare == Share::kNone ? 1 : 2;
  static constexpr int kRows = 64 * kMma * kTeamSize;  // of a tile
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // Registers: a thread starts with its share of 64 K, the loading warpgroup gives most of its own to the others.
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kSpareRegisters = kConsumers > 2 ? 32 : kMma * kCols > 256 ? 24 : 40;
  static constexpr int kRegisters = (kStartRegisters * (1 + kConsumers) - kSpareRegisters) / kConsumers / 8 * 8;
  static_assert(kTeams <= 3 && kConsumers <= 4);
  static constexpr int kTables = kTeams > 1 ? kTeams : 2;  // tiles under way
};

constexpr int kWarpgroup = 128;
constexpr int kBoxRows = 64, kBoxCols = 64;  // results travel in boxes
constexpr int kSharedLimit = 232448;

// Shared memory of a block: stages of x and w, per consumer boxes of results, per tile under way a table of its columns, barriers.
template <class Shape, class In, class Out>
struct GemmMemory {
  static constexpr int kXBytes = Shape::kRows * 128, kWBytes = Shape::kCols * 128, kStageBytes = kXBytes + kWBytes;
  static constexpr int kBoxes = Shape::kMma * (Shape::kCols / kBoxCols), kBoxBytes = kBoxRows * kBoxCols * static_cast<int>(sizeof(Out));
  static constexpr int kBuffers = Shape::kConsumers * kBoxes * kBoxBytes > 65536 ? Shape::kCols / kBoxCols : kBoxes;  // boxes in memory at a time
  static constexpr int kColumnBytes = Shape::kCols * 12;                    // factor and bias of each column, then the gains
  static constexpr int kFixedBytes = Shape::kConsumers * kBuffers * kBoxBytes + Shape::kTables * kColumnBytes + 256;
  static constexpr int kStages = (kSharedLimit - kFixedBytes) / kStageBytes < 6 ? (kSharedLimit - kFixedBytes) / kStageBytes : 6;
  static constexpr int kBarriers = 2 * kStages + Shape::kConsumers * kBuffers + 2 * Shape::kTables;
  static constexpr int kBytes = kStages * kStageBytes + Shape::kConsumers * kBuffers * kBoxBytes + Shape::kTables * kColumnBytes + kBarriers * 8;
  static_assert(kStages >= 2 && kBytes <= kSharedLimit && kBarriers * 8 <= 256 && kBoxes % kBuffers == 0);

  uint32_t base;
  uint8_t* bytes;  // the same place
  __device__ uint8_t* at(uint32_t address) const { return bytes + (address - base); }
  __device__ uint32_t x(int stage) const { return base + stage * kStageBytes; }
  __device__ uint32_t box(int consumer, int buffer) const { return base + kStages * kStageBytes + (consumer * kBuffers + buffer) * kBoxBytes; }
  __device__ uint32_t columns(int table) const { return base + kStages * kStageBytes + Shape::kConsumers * kBuffers * kBoxBytes + table * kColumnBytes; }
  __device__ uint32_t full(int stage) const { return base + kBytes - kBarriers * 8 + stage * 8; }
  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }
  __device__ uint32_t residual(int consumer, int buffer) const { return full(2 * kStages + consumer * kBuffers + buffer); }
  __device__ uint32_t columns_full(int table) const { return full(2 * kStages + Shape::kConsumers * kBuffers + table); }
  __device__ uint32_t columns_empty(int table) const { return full(2 * kStages + Shape::kConsumers * kBuffers + Shape::kTables + table); }
};

struct GemmMaps {
  CUtensorMap x, w, y, residual;
};

struct GemmParams {
  int tiles_m, tiles_n, k_blocks, n;
  const float* x_scale;  // null: 1
  const float* w_scale;
  int w_scale_stride;       // 1: per channel, 0: per tensor
  const void *bias, *gain;  // null where the program has none
  const float* y_scale;     // 8-bit results
  bool by_rows;  // order of tiles
  bool residual;
  Unary act;
};

// Tiles that run at the same time share rows of x (by_rows) or rows of w, whichever is the smaller matrix: the larger one is read from memory once, the smaller one stays
// in the L2.
template <class Shape>
struct TileWalk {
  static constexpr bool kShareX = Shape::kShare == Share::kX, kShareW = Shape::kShare == Share::kW;
  int index;
  __device__ explicit TileWalk(const GemmParams&) : index(static_cast<int>(blockIdx.x) / Shape::kCluster) {}
  static __device__ int rank() { return Shape::kCluster > 1 ? static_cast<int>(rank_in_cluster()) : 0; }
  static __device__ int rows(const GemmParams& p) { return kShareW ? (p.tiles_m + 1) / 2 : p.tiles_m; }
  static __device__ int cols(const GemmParams& p) { return kShareX ? (p.tiles_n + 1) / 2 : p.tiles_n; }
  __device__ bool done(const GemmParams& p) const { return index >= rows(p) * cols(p); }
  __device__ void next() { index += static_cast<int>(gridDim.x) / Shape::kCluster; }
  __device__ int m(const GemmParams& p) const {
    const int row = p.by_rows ? index / cols(p) : index % rows(p);
    return (kShareW ? row * 2 + rank() : row) * Shape::kRows;
  }
  __device__ int n(const GemmParams& p) const {
    const int col = p.by_rows ? index % cols(p) : index / rows(p);
    return (kShareX ? col * 2 + rank() : col) * Shape::kCols;
  }
};

// One thread loads x, another w: each has few enough values to run in the 24 registers that the consumers leave.
template <class Shape, class In, class Memory, bool kX>
__device__ void load_operand(const CUtensorMap* map, const GemmParams& p, const Memory& memory) {
  constexpr int kBlockK = 128 / sizeof(In), kBytes = kX ? Memory::kXBytes : Memory::kWBytes;
  constexpr bool kShared = Shape::kShare == (kX ? Share::kX : Share::kW);
  constexpr int kPart = (kX ? Shape::kRows : Shape::kCols) / 2;  // rows that each block of a pair loads for both
  const uint32_t first = memory.x(0) + (kX ? 0 : Memory::kXBytes) + (kShared ? TileWalk<Shape>::rank() * kPart * 128 : 0);
  uint32_t slot = first, full = memory.full(0), parity = 1;
  for (TileWalk<Shape> at(p); !at.done(p); at.next()) {
    const int row = (kX ? at.m(p) : at.n(p)) + (kShared ? TileWalk<Shape>::rank() * kPart : 0);
    for (int kb = 0; kb < p.k_blocks; ++kb) {
      wait(full + Memory::kStages * 8, parity);
      arrive_expecting(full, kBytes);
      if constexpr (kShared) {
        load_box_for(3, slot, map, kb * kBlockK, row, full);
      } else {
        load_box(slot, map, kb * kBlockK, row, full);
      }
      slot += Memory::kStageBytes, full += 8;
      if (slot == first + Memory::kStages * Memory::kStageBytes) slot = first, full -= Memory::kStages * 8, parity ^= 1;
    }
  }
}

// Two warps bring the columns' table of the tile after this one, so that no consumer waits for them: v = sum * factor + bias, in units of y's
// scale where no activation follows, halved where one does (activation_fast.h).
template <class Shape, class In, class Vector, class Memory>
__device__ void load_columns(const GemmParams& p, const Memory& memory) {
  const int lane = threadIdx.x % 64;
  const float unit = p.act != Unary::identity ? (p.act == Unary::relu ? 1.0f : 0.5f) : p.y_scale != nullptr ? 1.0f / *p.y_scale : 1.0f, x_scale = (p.x_scale != nullptr ? *p.x_scale : 1.0f) * unit;
  uint32_t table = 0, parity = 1;
  for (TileWalk<Shape> at(p); !at.done(p); at.next()) {
    const int n = at.n(p);
    wait(memory.columns_empty(table), parity);
    uint8_t* columns = memory.at(memory.columns(table));
#pragma unroll 1
    for (int i = lane; i < Shape::kCols; i += 64) {
      const int col = n + i;
      const bool exists = col < p.n;
      float factor = x_scale, bias = 0;
      if (exists && sizeof(In) == 1) factor *= p.w_scale[col * p.w_scale_stride];
      if (exists && p.bias != nullptr) bias = static_cast<float>(static_cast<const Vector*>(p.bias)[col]) * unit;
      reinterpret_cast<float2*>(columns)[i] = {factor, bias};
      if (p.gain != nullptr) reinterpret_cast<float*>(columns + Shape::kCols * 8)[i] = exists ? static_cast<float>(static_cast<const Vector*>(p.gain)[col]) : 1.0f;
    }
    arrive(memory.columns_full(table));
    if (++table == Shape::kTables) table = 0, parity ^= 1;
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

template <class Shape, class Memory>
__device__ __forceinline__ void release(const Memory& memory, uint32_t stage, int thread) {
  // One arrival at each block that wrote here.
  if constexpr (Shape::kCluster == 1) {
    if (thread == 0) arrive(memory.empty(stage));
  } else {
    if (thread % 32 == 0 && thread / 32 < Shape::kCluster) arrive_remote(address_in(memory.empty(stage), thread / 32));
  }
}

template <class Shape, class In, class Memory>
__device__ __forceinline__ void multiply_tile(SumOf<In> (&d)[Shape::kMma][Shape::kCols / 2], const GemmParams& p, const Memory& memory, RingPosition<Memory::kStages>& at, int x_rows,
                                              int thread) {
  uint32_t last = 0;
  for (int kb = 0; kb < p.k_blocks; ++kb) {
    wait(memory.full(at.stage), at.parity);
    const uint64_t x = operand_descriptor(memory.x(at.stage) + x_rows * 128), w = operand_descriptor(memory.x(at.stage) + Memory::kXBytes);
#pragma unroll
    for (int i = 0; i < Shape::kMma; ++i) pin(d[i]);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < Shape::kMma; ++i) {
        Products<In, Shape::kCols>::shared(d[i], x + i * kDescriptorStep64Rows + k * kDescriptorStepK, w + k * kDescriptorStepK, kb > 0 || k > 0);
      }
    }
    commit_products();
    wait_products<1>();  // the block before this one is done: its stage is free
    if (kb > 0) release<Shape>(memory, last, thread);
    last = at.stage;
    at.next();
  }
}

// The program on a box of 64 x 64 results in registers, then into shared memory where the copy engine takes them (and where it left the
// residual, place for place). Each step goes over kGroups groups of
// eight columns: few warps per scheduler run this, so latencies hide behind the thread's own numbers.
template <class In, class Out, Unary kAct, bool kInHalf, int kGroups>
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
    if constexpr (kInHalf) {
      const __half2 unit_pair = __float2half2_rn(unit);
#pragma unroll
      for (int i = 0; i < kGroups * 2; ++i) {
        *reinterpret_cast<uint16_t*>(place(first + i / 2, i % 2)) = gelu_erf_e4m3_pair(v[i / 2][i % 2][0], v[i / 2][i % 2][1], unit_pair);
      }
    } else {
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) {
      float& x = v[i / 4][i / 2 % 2][i % 2];
      x = activate_half_argument<kAct>(x);
      if (kByte && kAct != Unary::identity) x *= unit;
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

  __device__ __forceinline__ void store(int box, int m, int n) const {
    store_box(&maps.y, n + box % kGroups * kBoxCols, m + box / kGroups * kBoxRows, memory.box(consumer, box % kBuffers));
    commit_stores();
  }

  // The program on a tile. (A loop over its boxes that is not unrolled saves instruction fetches but must move the sums of later boxes down: slower.)
  template <Unary kAct, bool kInHalf = false>
  __device__ __forceinline__ void finish(SumOf<In> (&d)[Shape::kMma][Shape::kCols / 2], int m, int n, uint32_t visits, int table) const {
    const uint8_t* columns = memory.at(memory.columns(table));
    const float unit = sizeof(Out) == 1 && kAct != Unary::identity ? 1.0f / *p.y_scale : 1.0f;
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
        const auto* sums = d[rows] + group * (kBoxCols / 2);
        const auto* table_columns = reinterpret_cast<const float2*>(columns) + group * kBoxCols;
        const auto* gains = reinterpret_cast<const float*>(columns + Shape::kCols * 8) + group * kBoxCols;
        uint8_t* box = memory.at(memory.box(consumer, buffer));
        constexpr int kBatch = Shape::kRegisters - Shape::kMma * Shape::kCols / 2 > 80 ? 4 : 2;  // groups under way: as there are registers beside the sums
        finish_box<In, Out, kAct, kInHalf, kBatch>(sums, p, table_columns, gains, box, unit);
        if (p.residual) {  // each box at once: its place is wanted for the residual of one further on
          fence_for_copy_engine();
          sync_threads(own, kWarpgroup);
          if (thread == 0) {
            store(i, m, n);
            if (kBuffers < kBoxes && i > 0 && i - 1 + kBuffers < kBoxes) {
              wait_stores_read<1>();
              load_residual(i - 1 + kBuffers, m, n);
            }
          }
        }
      }
      if (!p.residual) {
        fence_for_copy_engine();
        sync_threads(own, kWarpgroup);
        if (thread == 0) {
#pragma unroll
          for (int group = 0; group < kGroups; ++group) store(rows * kGroups + group, m, n);
        }
      }
    }
    if (thread == 0) arrive(memory.columns_empty(table));  // after the last barrier: everybody has read it
  }

  __device__ void run() const {
    // Named barriers 1, 2, 3: which team's turn it is to multiply.
    constexpr bool kTurns = Shape::kTeams > 1;
    constexpr int kTurnThreads = 2 * Shape::kTeamSize * kWarpgroup;  // this team and the one before
    const int team = consumer / Shape::kTeamSize, turn = 1 + team, next_turn = 1 + (team + 1) % Shape::kTeams;
    const int first_row = consumer % Shape::kTeamSize * Shape::kMma * 64;  // in the tile
    SumOf<In> d[Shape::kMma][Shape::kCols / 2];
    if (kTurns && team == Shape::kTeams - 1) signal_threads(next_turn, kTurnThreads);  // the first turn is team 0's
    // gelu_erf to e4m3 is computed in f16 where the scale lies well inside its range and no gain follows.
    const float y_scale = std::is_same_v<Out, __nv_fp8_e4m3> && p.gain == nullptr ? *p.y_scale : 0.0f;
    const bool in_half = y_scale > 0x1p-13f && y_scale < 0x1p13f;
    if (thread == 0 && p.residual) cuda::wait_for_earlier_kernels();
    RingPosition<Memory::kStages> at;
    TileWalk<Shape> tile(p);
    for (int i = 0; i < team; ++i) tile.next(), at.skip(p.k_blocks);
    for (uint32_t visits = 0; !tile.done(p); ++visits) {
      const int m = tile.m(p) + first_row, n = tile.n(p);
      if (thread == 0) {
        wait_stores_read();  // of the tile before: its places are free
        if (p.residual) {
#pragma unroll
          for (int i = 0; i < kBuffers; ++i) load_residual(i, m, n);
        }
      }
      if (kTurns) sync_threads(turn, kTurnThreads);
      multiply_tile<Shape, In>(d, p, memory, at, first_row, thread);
      if (kTurns) signal_threads(next_turn, kTurnThreads);
      // Tables are used in the order of tiles: in turns, each team has one of them.
      const int table = kTurns ? team : static_cast<int>(visits & 1);
      wait(memory.columns_full(table), kTurns ? visits & 1 : visits / 2 & 1);
      wait_products<0>();
#pragma unroll
      for (int i = 0; i < Shape::kMma; ++i) pin(d[i]);
      release<Shape>(memory, (at.stage + Memory::kStages - 1) % Memory::kStages, thread);
      if (!p.residual) sync_threads(own, kWarpgroup);  // the first places are free
      switch (p.act) {
        case Unary::gelu_erf:
          if constexpr (std::is_same_v<Out, __nv_fp8_e4m3>) {
            if (in_half) {
              finish<Unary::gelu_erf, true>(d, m, n, visits, table);
              break;
            }
          }
          finish<Unary::gelu_erf>(d, m, n, visits, table);
          break;
        case Unary::gelu_tanh: finish<Unary::gelu_tanh>(d, m, n, visits, table); break;
        case Unary::gelu_quick: finish<Unary::gelu_quick>(d, m, n, visits, table); break;
        case Unary::silu: finish<Unary::silu>(d, m, n, visits, table); break;
        case Unary::relu: finish<Unary::relu>(d, m, n, visits, table); break;
        default: finish<Unary::identity>(d, m, n, visits, table); break;
      }
#pragma unroll
      for (int i = 0; i < Shape::kTeams; ++i) tile.next();
      at.skip((Shape::kTeams - 1) * p.k_blocks);
    }
    if (thread == 0) wait_stores_read();
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
      init_barrier(memory.empty(i), Shape::kTeamSize * Shape::kCluster);
    }
    for (int i = 0; i < Shape::kConsumers * Memory::kBuffers; ++i) init_barrier(memory.residual(0, i), 1);
    for (int i = 0; i < Shape::kTables; ++i) {
      init_barrier(memory.columns_full(i), 64);
      init_barrier(memory.columns_empty(i), Shape::kTeamSize);
    }
    fence_barrier_init();
    prefetch(&maps.x);
    prefetch(&maps.w);
    prefetch(&maps.y);
    cuda::let_next_kernel_start();
  }
  if constexpr (Shape::kCluster > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
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
    const int thread = threadIdx.x % kWarpgroup;
    Consumer<Shape, In, Out>{maps, p, memory, warpgroup - 1, thread, 3 + warpgroup}.run();
  }
  if constexpr (Shape::kCluster > 1) sync_cluster();  // the other block may still write here
}

}  // namespace tessera::sm90
