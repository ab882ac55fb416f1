// SPDX-License-Identifier: Apache-2.0
// The swapped mainloop (swapped.cuh) by 4-bit weights: y[m, n] = program(sum_k x[m, k] * w[n, k]) for few rows, where
// weights are what takes time. Codes and their block scales arrive in a ring of stages, in the order in which threads
// hold them (types/nibble_tiles.h), become a left operand of wgmma in registers (nibble_operands.cuh), and are
// multiplied by rows of x from shared memory. Operands are made for four instructions while the four before run. All
// else is the swapped mainloop's: weights arrive before the kernel before this one has ended, slices of K are blocks of
// a cluster and are added up in order, the program is the same. The sums' tokens are finished 16 at a time, so that two
// groups of four warps fit their registers.
#pragma once

#include "archs/sm90/bulk_load.cuh"
#include "tiles/sm90/nibble_operands.cuh"
#include "tiles/sm90/swapped.cuh"

namespace tessera::sm90 {

struct NibbleParams {
  SwappedParams swapped;  // k_blocks: stages of 128 numbers
  NibbleMemory memory;
  const uint8_t *codes, *scales;  // Layout::kNibbles16 or kNibbles8; kTiles32x8
  int row_tiles;                  // of 32 rows of w
};

template <class In>
constexpr int kXBits = 8 * static_cast<int>(sizeof(In));

// Where this block and, of its consumers, this group stand.
template <class In, int kTokens, int kGroups>
struct NibbleBlock {
  static constexpr int kX = nibble_x_bytes(kTokens, kXBits<In>),
                       kStage = nibble_stage_bytes({kTokens, kGroups, 1}, kXBits<In>);
  uint32_t base, received;  // shared memory; barriers of what other slices send, those of the stages behind them
  uint32_t codes, scales;
  uint8_t* bytes;  // the same place as base
  int slice, token, channel, k_begin, k_count;

  __device__ NibbleBlock(const NibbleParams& q, uint8_t* shared) : bytes(shared) {
    const SwappedParams& p = q.swapped;
    base = cuda::shared_address(shared);
    received = base + q.memory.barriers, codes = base + q.memory.codes, scales = base + q.memory.scales;
    const int split_bits = __ffs(p.shape.split) - 1;  // a power of two
    const int cluster = static_cast<int>(blockIdx.x) >> split_bits, tile = cluster / p.tiles_m;
    slice = split_bits > 0 ? static_cast<int>(rank_in_cluster()) : 0;
    token = (cluster - tile * p.tiles_m) * kTokens;
    channel = tile * kGroups * kSwappedChannels;
    k_begin = p.k_blocks * slice >> split_bits;  // slice_begin
    k_count = (p.k_blocks * (slice + 1) >> split_bits) - k_begin;
  }
  __device__ uint32_t x(int stage) const { return base + stage * kX; }
  // Of one of the tiles of 32 rows, two per group.
  __device__ uint32_t code_tile(int stage, int tile) const {
    return codes + (stage * 2 * kGroups + tile) * NibbleTiles::kTileBytes;
  }
  __device__ uint32_t scale_tile(int stage, int tile) const {
    return scales + (stage * 2 * kGroups + tile) * kNibbleScaleBytes;
  }
  __device__ uint32_t full(int stage) const { return received + kGroups * 8 + stage * 16; }
  __device__ uint32_t empty(int stage) const { return full(stage) + 8; }
};

// A stage's weights. Tiles behind the last one are read from there: nobody stores what they make.
template <class In, SwappedKind kKind, int kTokens, int kGroups>
__device__ __forceinline__ void load_nibbles(const NibbleParams& q, const NibbleBlock<In, kTokens, kGroups>& block,
                                             int stage, int k) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    WeightRows rows = weight_rows<kKind>(q.swapped, block.channel + g * kSwappedChannels);
    if constexpr (kKind == SwappedKind::kPlain) rows.second = rows.first + NibbleTiles::kRows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile = min((half == 0 ? rows.first : rows.second) / NibbleTiles::kRows, q.row_tiles - 1);
      const int64_t at = int64_t{tile} * q.swapped.k_blocks + k;
      load_bytes(block.code_tile(stage, 2 * g + half), q.codes + at * NibbleTiles::kTileBytes, NibbleTiles::kTileBytes,
                 block.full(stage));
      load_bytes(block.scale_tile(stage, 2 * g + half), q.scales + at * kNibbleScaleBytes, kNibbleScaleBytes,
                 block.full(stage));
    }
  }
}

template <class In, int kTokens, int kGroups>
__device__ __forceinline__ void load_rows(const CUtensorMap* map, const NibbleBlock<In, kTokens, kGroups>& block,
                                          int stage, int k) {
  constexpr int kBoxK = 128 / sizeof(In);
#pragma unroll
  for (int box = 0; box < NibbleTiles::kCols / kBoxK; ++box)
    load_box(block.x(stage) + box * kTokens * 128, map, k * NibbleTiles::kCols + box * kBoxK, block.token,
             block.full(stage));
}

// What one thread does: the barriers and the first weights, which need not wait.
template <class In, SwappedKind kKind, int kTokens, int kGroups>
__device__ __forceinline__ void begin_nibble_loads(const CUtensorMap* map, const NibbleParams& q,
                                                   const NibbleBlock<In, kTokens, kGroups>& block) {
  prefetch(map);
  for (int i = 0; i < q.memory.stages; ++i) {
    init_barrier(block.full(i), 1);
    init_barrier(block.empty(i), 4 * kGroups);  // each warp has read it
  }
  for (int g = 0; g < kGroups; ++g) init_barrier(block.received + 8 * g, 1);
  fence_barrier_init();
  fence_for_tma();
  const SwappedShape& shape = q.swapped.shape;
  if (shape.split > 1) {
    for (int g = 0; g < kGroups; ++g) arrive_expecting(block.received + 8 * g, (shape.split - 1) * sent_bytes(shape));
  }
#pragma unroll 1
  for (int i = 0; i < q.memory.stages && i < block.k_count; ++i) {
    arrive_expecting(block.full(i), block.kStage);
    load_nibbles<In, kKind>(q, block, i, block.k_begin + i);
  }
}

// The same thread, once x is there; then the stages again and again where the slice is longer.
template <class In, SwappedKind kKind, int kTokens, int kGroups>
__device__ __forceinline__ void finish_nibble_loads(const CUtensorMap* map, const NibbleParams& q,
                                                    const NibbleBlock<In, kTokens, kGroups>& block) {
  const int first = min(q.memory.stages, block.k_count);
  cuda::wait_for_earlier_kernels();
#pragma unroll 1
  for (int i = 0; i < first; ++i) load_rows(map, block, i, block.k_begin + i);
  int stage = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int i = first; i < block.k_count; ++i) {
    wait(block.empty(stage), parity);
    arrive_expecting(block.full(stage), block.kStage);
    load_nibbles<In, kKind>(q, block, stage, block.k_begin + i);
    load_rows(map, block, stage, block.k_begin + i);
    if (++stage == q.memory.stages) stage = 0, parity ^= 1;
  }
}

// The products of one group's slice.
template <class In, int kTokens, int kGroups>
struct NibbleLoop {
  using Expander = NibbleExpander<In>;
  const NibbleParams& q;
  const NibbleBlock<In, kTokens, kGroups>& block;
  const Expander expander;
  const int tile;                // of 32 rows of a stage
  const uint32_t codes, scales;  // the thread's bytes of a tile
  float (&d)[kTokens / 2];
  int stage = 0, last = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ NibbleLoop(const NibbleParams& params, const NibbleBlock<In, kTokens, kGroups>& own,
                                        float (&sums)[kTokens / 2])
      : q(params),
        block(own),
        expander(own.base + params.memory.table),
        tile(static_cast<int>(threadIdx.x) / 64),
        codes(threadIdx.x % 64 * 16),
        scales((threadIdx.x % 64 / 32 * 16 + threadIdx.x % 32 / 4) * 8),
        d(sums) {}

  __device__ __forceinline__ uint4 plane(int i) const {
    return load_shared16(block.code_tile(stage, tile) + i * NibbleTiles::kPlaneBytes + codes);
  }
  __device__ __forceinline__ NibbleScales scales_here() const {
    const uint32_t at = block.scale_tile(stage, tile) + scales;
    return {load_shared8(at), load_shared8(at + 64)};
  }
  __device__ __forceinline__ void release(int done) const {
    if (threadIdx.x % 32 == 0) arrive(block.empty(done));
  }

  // Four instructions; the four before are done at the end, so that the registers of their operand are free.
  __device__ __forceinline__ void multiply(NibbleOperands& a, NibbleOperands& before, uint64_t x, bool accumulate) {
#pragma unroll
    for (int k = 0; k < 4; ++k) pin(a[k]);
    pin(d);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Products<In, kTokens>::registers(d, a[k], x + k * kDescriptorStepK, accumulate || k > 0);
    commit_products();
    wait_products<1>();
#pragma unroll
    for (int k = 0; k < 4; ++k) pin(before[k]);
  }
  __device__ __forceinline__ void next() {
    last = stage;
    if (++stage == q.memory.stages) stage = 0, parity ^= 1;
  }

  // A stage of 16-bit operands is two groups of four instructions, of 8-bit ones one.
  __device__ __forceinline__ void step(NibbleOperands& a, NibbleOperands& b, int i) {
    wait(block.full(stage), parity);
    const NibbleScales s = scales_here();
    // From one lane: so the compiler knows that it is the same in all, and makes the descriptors of a stage in uniform
    // registers, which saves 24 instructions.
    const uint64_t x = operand_descriptor(__shfl_sync(0xffffffffu, block.x(stage), 0));
    if constexpr (Expander::kTable) {
      const uint4 words[2] = {plane(0), plane(1)};
      expander.expand(a, words, s);
      multiply(a, b, x, i > 0);
      if (i > 0) release(last);
    } else {
      expander.expand(a, plane(0), s, 0);
      multiply(a, b, x, i > 0);
      if (i > 0) release(last);
      expander.expand(b, plane(1), s, 1);
      multiply(b, a, x + (kTokens * 128 >> 4), true);
    }
    next();
  }

  __device__ __forceinline__ void run() {
    NibbleOperands a = {}, b = {};
    if constexpr (Expander::kTable) {
      int i = 0;
#pragma unroll 1
      for (; i + 2 <= block.k_count; i += 2) {
        step(a, b, i);
        step(b, a, i + 1);
      }
      if (i < block.k_count) step(a, b, i);
    } else {
#pragma unroll 1
      for (int i = 0; i < block.k_count; ++i) step(a, b, i);
    }
    wait_products<0>();
    pin(d);
  }
};

// Sums as leave_sums has them, of what the products stand for.
template <class In, int kTokens>
__device__ __forceinline__ void leave_nibble_sums(const float (&d)[kTokens / 2], float* sums, int thread) {
  constexpr float kUnit = 1 << NibbleExpander<In>::kShift;
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i)
    sums[sums_word(i / 4 * 8 + result_col(thread) + i % 2, turn_pairs32(result_row(thread) + i / 2 % 2 * 8))] =
        d[i] * kUnit;
}

template <class In, SwappedKind kKind, int kTokens, int kGroups>
__device__ __forceinline__ void consume_nibbles(const NibbleParams& q, const NibbleBlock<In, kTokens, kGroups>& block) {
  constexpr int kAll = 1, kOwn = 2, kSums = kTokens * kSumsRow * 4;
  // What the program needs is under way during the products where registers allow.
  constexpr bool kEarly = kGroups == 1;
  const SwappedParams& p = q.swapped;
  const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  const int split = p.shape.split, rows = kTokens / split, sent = sent_bytes({kTokens, split});
  SwappedPlace<kKind> at(p, block.channel + group * kSwappedChannels, block.token + block.slice * rows, rows);
  at.row = thread / 8;
  // Where this group's sums lie that slice `from` has sent to slice `to`.
  const auto inbox = [&](int to, int from) {
    return q.memory.body_bytes + (group * (split - 1) + (from < to ? from : from - 1)) * sent;
  };
  using Columns = SwappedColumns<kKind == SwappedKind::kGated>;
  using Tokens = SwappedTokens<kKind, 1>;

  float d[kTokens / 2];
  const auto multiply = [&] {
    NibbleLoop<In, kTokens, kGroups>(q, block, d).run();
    sync_threads(kAll, 128 * kGroups);  // no thread reads stages any more: sums take their place
    leave_nibble_sums<In, kTokens>(d, reinterpret_cast<float*>(block.bytes + group * kSums), thread);
    if (split > 1) fence_for_tma();
    sync_threads(kOwn + group, 128);
    if (split > 1) {
      if (thread % 32 == 0) {
        for (int to = thread / 32; to < split; to += 4) {
          if (to == block.slice) continue;
          send_to_block(address_in(block.base + inbox(to, block.slice), to), block.base + group * kSums + to * sent,
                        sent, address_in(block.received + 8 * group, to));
        }
      }
      __syncwarp();
      wait(block.received + 8 * group, 0);
    }
    __syncwarp();
    if (split > 1) arrive_cluster();  // this block has what the others send
  };
  const auto finish = [&](const Columns& columns, const Tokens& tokens) {
    float v[1][8];
#pragma unroll 1
    for (int i = 0; i < split; ++i) {
      if (planted(Fault::kSliceMissing) && i > 0 && i == split - 1) continue;
      const int s = planted(Fault::kSliceOrder) ? split - 1 - i : i;
      const uint8_t* from = block.bytes + (s == block.slice ? group * kSums + s * sent : inbox(block.slice, s));
      if (i == 0)
        take_sums<float, 1, true>(from, at.row, rows, v);
      else
        take_sums<float, 1, false>(from, at.row, rows, v);
    }
    finish_tokens<float, kKind, 1>(p, at, columns, tokens, v);
  };

  if constexpr (kEarly) {
    if (p.computed) cuda::wait_for_earlier_kernels();
    const Columns columns = at.columns(p);
    cuda::wait_for_earlier_kernels();
    const Tokens first(p, at);
    multiply();
    finish(columns, first);
#pragma unroll 1
    for (int done = 16; done < rows; done += 16) {
      at.row += 16;
      finish(columns, Tokens(p, at));
    }
  } else {
    cuda::wait_for_earlier_kernels();
    multiply();
    const Columns columns = at.columns(p);
#pragma unroll 1
    for (int done = 0; done < rows; done += 16, at.row += 16) finish(columns, Tokens(p, at));
  }
}

// Barriers of the cluster as in multiply_swapped.
template <class In, SwappedKind kKind, int kTokens, int kGroups>
__global__ void __launch_bounds__(128 * kGroups + 32, 2)
    multiply_nibbles(const __grid_constant__ CUtensorMap x, const __grid_constant__ NibbleParams q) {
  cuda::let_next_kernel_start();
  extern __shared__ __align__(1024) uint8_t shared[];  // kSwizzleAtomBytes
  const NibbleBlock<In, kTokens, kGroups> block(q, shared);
  constexpr int kConsumers = 128 * kGroups;
  const bool loader = threadIdx.x == kConsumers, clustered = q.swapped.shape.split > 1;
  if (loader) begin_nibble_loads<In, kKind>(&x, q, block);
  if (threadIdx.x < kConsumers)
    NibbleExpander<In>::fill_table(shared + q.memory.table, static_cast<int>(threadIdx.x), kConsumers);
  __syncwarp();
  if (clustered) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if (threadIdx.x >= kConsumers) {
    if (loader) finish_nibble_loads<In, kKind>(&x, q, block);
    __syncwarp();
    if (clustered) arrive_cluster();
  } else {
    consume_nibbles<In, kKind>(q, block);
    __syncwarp();
  }
  if (clustered) wait_cluster();
}

}  // namespace tessera::sm90
