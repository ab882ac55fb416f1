// SPDX-License-Identifier: Apache-2.0
// The sparse mainloop on Hopper: y[m, n] = program(sum_k x[m, k] * w[n, k]) with w stored 2:4 sparse. Only a left
// operand may be sparse, so 64 rows of w are the rows of an instruction and 128 tokens (rows of x) its columns. A
// sparse instruction at full rate takes all that shared memory can read for x alone: w comes from the L2 straight to
// the registers it is multiplied from, in the order of types/sparse24_tiles.h, two blocks of k ahead. Tokens arrive by
// TMA in a ring of stages, which two warpgroups read, each with 128 channels of its own: x is written to shared memory
// once for 256 channels. The second warpgroup begins some blocks of k after the first one and stays behind, so that one
// multiplies while the other runs the program on its sums. A thread has four neighbouring channels of a token, and a
// warp whole sectors of y: results need no way through shared memory.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "archs/cuda/instructions.cuh"
#include "archs/planted_fault.h"
#include "archs/sm90/chip.h"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/sparse_products.cuh"
#include "archs/sm90/swizzle.h"
#include "tiles/cuda/elements.cuh"
#include "tiles/sm90/finish_fours.cuh"
#include "tiles/sm90/gemm_tiles.h"
#include "types/sparse24_tiles.h"

namespace tessera::sm90 {

struct SparseShape {
  static constexpr int kTokens = 128, kChannels = 256, kOwnChannels = 128;  // of a tile; of a warpgroup
  static constexpr int kThreads = 3 * 128;                                  // one warpgroup loads, two multiply
  static constexpr int kSpareRegisters = 40, kRegisters = 232;
  static constexpr int kStageBytes = kTokens * 128, kStages = (kMostSharedBytes - 256) / kStageBytes;
  static constexpr int kBytes = kStages * (kStageBytes + 16);
  // Blocks of k by which the second warpgroup begins later: less than the ring holds.
  static constexpr int kBehind = kStages - 2;
  static_assert(kOwnChannels == Sparse24Tiles::kRows && kBytes <= kMostSharedBytes && kStages <= 16);
};

struct SparseParams {
  GemmTiles tiles;  // rows of them: tokens
  int k_blocks, m, cols;
  int w_tiles;              // of 128 rows of w
  const void* w;            // Layout::kSparse24Tiles
  void* y;                  // dense rows
  const float* x_scale;     // null: 1
  const float* w_scale;     // null: 1
  int w_scale_stride;       // 1: per channel, 0: per tensor
  const void *bias, *gain;  // null where the program has none
  bool computed;            // one of them is what an earlier kernel makes, no constant
  const float* y_scale;     // 8-bit results
  const void* residual;     // null where the program has none
  int64_t residual_stride;
  SmoothActivation act;
};

struct SparseMemory {
  uint32_t base;
  __device__ uint32_t x(int stage) const { return base + stage * SparseShape::kStageBytes; }
  __device__ uint32_t full(int stage) const {
    return base + SparseShape::kStages * SparseShape::kStageBytes + stage * 8;
  }
  __device__ uint32_t empty(int stage) const { return full(SparseShape::kStages + stage); }
};

// What a thread multiplies of one block of k: its planes of a tile.
struct SparseBlock {
  uint4 part[4];
  uint4 metadata;
};
__device__ __forceinline__ uint4 load_stream(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ __forceinline__ void load_block(SparseBlock& block, const uint4* tile) {
#pragma unroll
  for (int i = 0; i < 4; ++i) block.part[i] = load_stream(tile + i * Sparse24Tiles::kThreads);
  block.metadata = load_stream(tile + 4 * Sparse24Tiles::kThreads);
}

template <class In>
__device__ void load_tokens(const CUtensorMap* map, const SparseParams& p, const SparseMemory& memory) {
  uint32_t stage = 0, parity = 1;
  for (uint32_t tile = blockIdx.x; tile < p.tiles.count; tile += gridDim.x) {
    const int token = static_cast<int>(p.tiles.row(tile)) * SparseShape::kTokens;
    for (int kb = 0; kb < p.k_blocks; ++kb) {
      wait(memory.empty(stage), parity);
      arrive_expecting(memory.full(stage), SparseShape::kStageBytes);
      load_box(memory.x(stage), map, kb * (128 / static_cast<int>(sizeof(In))), token, memory.full(stage));
      if (++stage == SparseShape::kStages) stage = 0, parity ^= 1;
    }
  }
}

template <class In, class Out>
struct SparseConsumer {
  using Sum = SumOf<In>;
  using Vector = std::conditional_t<std::is_same_v<Out, __nv_bfloat16>, __nv_bfloat16, __half>;
  static constexpr bool kByte = sizeof(Out) == 1;
  static constexpr int kTileWords = Sparse24Tiles::kTileBytes / 16;

  const SparseParams& p;
  const SparseMemory memory;
  const int consumer, thread;
  Sum d[2][64];
  uint32_t stage = 0, parity = 0, blocks = 0;

  __device__ SparseConsumer(const SparseParams& params, const SparseMemory& shared, int own, int own_thread)
      : p(params), memory(shared), consumer(own), thread(own_thread) {}

  __device__ __forceinline__ uint32_t stage_before() const { return stage == 0 ? SparseShape::kStages - 1 : stage - 1; }
  __device__ __forceinline__ void release(uint32_t done) const {
    if (thread == 0) arrive(memory.empty(done));
  }

  // One block of k from `own`; `next` gets the block after the next one, or the last one again, so that no branch
  // stands between the products of two blocks.
  __device__ __forceinline__ void step(const SparseBlock& own, SparseBlock& next, const uint4* tile, int kb) {
    wait(memory.full(stage), parity);
    const uint64_t x = operand_descriptor(memory.x(stage));
    pin(d[0]), pin(d[1]);
    begin_products();
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        const uint32_t metadata =
            t == 0 ? (c == 0 ? own.metadata.x : own.metadata.y) : (c == 0 ? own.metadata.z : own.metadata.w);
        SparseProducts<In>::registers(d[t], own.part[2 * t + c],
                                      planted(Fault::kMetadataOfNeighbour) ? own.metadata.x : metadata,
                                      x + 2 * c * kDescriptorStepK, kb > 0 || c > 0);
      }
    }
    commit_products();
    wait_products<1>();  // the block before is done: its stage is free, and so are the registers of `next`
    if (kb > 0) release(stage_before());
    load_block(next, tile + min(kb + 2, p.k_blocks - 1) * kTileWords);
    if (++stage == SparseShape::kStages) stage = 0, parity ^= 1;
    if (++blocks == static_cast<uint32_t>(SparseShape::kBehind) && consumer == 0) let_other_begin();
  }
  // The second warpgroup waits for this once.
  __device__ __forceinline__ void let_other_begin() const { signal_threads(1, 256); }

  // The sums of a tile; `own_tile`: the thread's first words of it, null where the tile has no channels of this
  // warpgroup.
  __device__ __forceinline__ void multiply(const uint4* tile) {
    SparseBlock a[3];
    load_block(a[0], tile);
    load_block(a[1], tile + min(1, p.k_blocks - 1) * kTileWords);
    int kb = 0;
#pragma unroll 1
    for (; kb + 3 <= p.k_blocks; kb += 3) {
      step(a[0], a[2], tile, kb);
      step(a[1], a[0], tile, kb + 1);
      step(a[2], a[1], tile, kb + 2);
    }
    if (kb < p.k_blocks) step(a[0], a[2], tile, kb);
    if (kb + 1 < p.k_blocks) step(a[1], a[0], tile, kb + 1);
    wait_products<0>();
    pin(d[0]), pin(d[1]);
    release(stage_before());
  }
  __device__ __forceinline__ void skip() {
    for (int kb = 0; kb < p.k_blocks; ++kb) {
      wait(memory.full(stage), parity);
      sync_threads(2, 128);  // no warp is still waiting for the stage that is filled again now
      release(stage);
      if (++stage == SparseShape::kStages) stage = 0, parity ^= 1;
    }
  }

  // What the program needs of the thread's four channels: v = sum * factor + bias, in units of y's scale and with the
  // gain in it where no activation stands between, halved where one does (activation_fast.h). As the table of the
  // normal mainloop has it (gemm_load.cuh).
  struct Channels {
    float factor[4], bias[4];
    float4 gains;
  };
  __device__ __forceinline__ Channels channels_from(int channel, float y_unit) const {
    Channels c;
    const float unit = p.act.present ? 0.5f : y_unit, x_scale = p.x_scale != nullptr ? *p.x_scale : 1.0f;
    float gains[4] = {1.0f, 1.0f, 1.0f, 1.0f};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int own = planted(Fault::kNeighboursBias) ? (channel + i) ^ 1 : channel + i;
      c.factor[i] = x_scale * unit, c.bias[i] = 0.0f;
      if (p.w_scale != nullptr) c.factor[i] *= p.w_scale[(channel + i) * p.w_scale_stride];
      if (p.bias != nullptr) c.bias[i] = static_cast<float>(static_cast<const Vector*>(p.bias)[own]) * unit;
      if (p.gain != nullptr) gains[i] = static_cast<float>(static_cast<const Vector*>(p.gain)[channel + i]);
      if (!p.act.present) c.factor[i] *= gains[i], c.bias[i] *= gains[i];
    }
    c.gains = {gains[0], gains[1], gains[2], gains[3]};
    return c;
  }

  // Residuals of the thread's four channels of two tokens in each of kGroups groups of eight.
  template <int kGroups>
  __device__ __forceinline__ void load_residuals(uint2 (&add)[2 * kGroups], int token, int channel) const {
#pragma unroll
    for (int r = 0; r < 2 * kGroups; ++r) {
      const int own = token + r / 2 * 8 + r % 2;
      add[r] = uint2{};
      if (own < p.m)
        add[r] = __ldcg(
            reinterpret_cast<const uint2*>(static_cast<const Out*>(p.residual) + own * p.residual_stride + channel));
    }
  }

  // kGroups groups of eight tokens at a time, two tokens of each in a thread: fewer where an activation needs the
  // registers beside a residual and a gain. Residuals are loaded twice ahead where there are registers for them.
  template <ProgramKind kProgram>
  __device__ __forceinline__ void finish(int first_token, int first_channel, float unit) {
    constexpr bool kMayAdd = !kByte && (kProgram == ProgramKind::kResidual || kProgram == ProgramKind::kAny);
    constexpr int kGroups = kMayAdd || kProgram == ProgramKind::kAny ? 1 : 2, kRows = 2 * kGroups;
    constexpr int kAhead = kProgram == ProgramKind::kResidual ? 2 : 0;
    int own_thread = thread;
    asm volatile("" : "+r"(own_thread));  // nothing below is made before the products and kept: registers
    const int channel = first_channel + own_thread / 4 * 4, token = first_token + result_col(own_thread);
    if (channel >= p.cols) return;
    Channels c;
    if (kProgram != ProgramKind::kAny) c = channels_from(channel, unit);
    Out* const y = static_cast<Out*>(p.y) + channel;
    const bool adds = kMayAdd && p.residual != nullptr;
    uint2 add[1 + kAhead][kRows] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (adds) load_residuals<kGroups>(add[i], token + i * kGroups * 8, channel);
    }
#pragma unroll
    for (int j = 0; j < 16; j += kGroups) {
      const int at = j / kGroups, ahead = at + kAhead;
      if (adds && ahead * kGroups < 16)
        load_residuals<kGroups>(add[ahead % (1 + kAhead)], token + ahead * kGroups * 8, channel);
      if (kProgram == ProgramKind::kAny) {  // again and again: there are no registers to keep it
        int here = channel;
        asm volatile("" : "+r"(here));
        c = channels_from(here, unit);
      }
      float v[kRows * 4];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Sum sum = d[i / 2][(j + r / 2) * 4 + i % 2 * 2 + r % 2];
          v[r * 4 + i] = fmaf(static_cast<float>(sum), c.factor[i], c.bias[i]);
        }
      }
      uint32_t words[kRows][sizeof(Out)];
      finish_fours<Out, kProgram, kRows>(words, v, c.gains, add[at % (1 + kAhead)], p.act, unit);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int own = token + (j + r / 2) * 8 + r % 2;
        if (own >= p.m) continue;
        Out* to = y + int64_t{own} * p.cols;
        if constexpr (kByte) {
          *reinterpret_cast<uint32_t*>(to) = words[r][0];
        } else {
          *reinterpret_cast<uint2*>(to) = {words[r][0], words[r][1]};
        }
      }
    }
  }

  __device__ __forceinline__ int w_tile(uint32_t tile) const {
    return static_cast<int>(p.tiles.col(tile)) * 2 + consumer;
  }
  template <ProgramKind kProgram>
  __device__ __forceinline__ void run(float unit) {
    if (consumer == 1) sync_threads(1, 256);  // let_other_begin
    for (uint32_t tile = blockIdx.x; tile < p.tiles.count; tile += gridDim.x) {
      if (w_tile(tile) >= p.w_tiles) {
        skip();
        continue;
      }
      multiply(static_cast<const uint4*>(p.w) + int64_t{w_tile(tile)} * p.k_blocks * kTileWords + thread);
      const bool last = tile + gridDim.x >= p.tiles.count;
      if (last && consumer == 0 && blocks < static_cast<uint32_t>(SparseShape::kBehind)) let_other_begin();
      asm volatile("" : "+r"(tile));  // its place is found once more
      finish<kProgram>(static_cast<int>(p.tiles.row(tile)) * SparseShape::kTokens,
                       w_tile(tile) * SparseShape::kOwnChannels, unit);
    }
  }

  __device__ __forceinline__ void run_program() {
    const float unit = kByte ? 1.0f / *p.y_scale : 1.0f;
    if (!p.act.present) {
      if (!kByte && p.residual != nullptr) return run < kByte ? ProgramKind::kPlain : ProgramKind::kResidual > (unit);
      return run<ProgramKind::kPlain>(unit);
    }
    if (p.gain != nullptr || p.residual != nullptr) return run<ProgramKind::kAny>(unit);
    if constexpr (std::is_same_v<Out, __nv_fp8_e4m3>) {
      if (!p.act.relu && unit > 0x1p-7f && unit < 0x1p10f) return run<ProgramKind::kInHalf>(unit);
    }
    run<ProgramKind::kActivationOrRelu>(unit);
  }
};

template <class In, class Out>
__global__ void __launch_bounds__(SparseShape::kThreads, 1)
    sparse_gemm(const __grid_constant__ CUtensorMap x, const __grid_constant__ SparseParams p) {
  extern __shared__ __align__(1024) uint8_t shared[];  // kSwizzleAtomBytes
  const SparseMemory memory{cuda::shared_address(shared)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < SparseShape::kStages; ++i) {
      init_barrier(memory.full(i), 1);
      init_barrier(memory.empty(i), 2);  // both warpgroups have read it
    }
    fence_barrier_init();
    prefetch(&x);
    cuda::let_next_kernel_start();
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    give_registers<SparseShape::kSpareRegisters>();
    if (threadIdx.x == 0) {
      cuda::wait_for_earlier_kernels();
      load_tokens<In>(&x, p, memory);
    }
  } else {
    take_registers<SparseShape::kRegisters>();
    // Vectors that are no constants, the residual and y belong to other kernels too; weights do not.
    if (p.computed || p.residual != nullptr) cuda::wait_for_earlier_kernels();
    SparseConsumer<In, Out>(p, memory, warpgroup - 1, static_cast<int>(threadIdx.x) % 128).run_program();
  }
}

}  // namespace tessera::sm90
