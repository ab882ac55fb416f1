// SPDX-License-Identifier: Apache-2.0
// A consumer of the normal mainloop (gemm.cuh) and the kernel.
#pragma once

#include <type_traits>

#include "tiles/sm90/gemm_finish.cuh"
#include "tiles/sm90/gemm_load.cuh"
#include "tiles/sm90/gemm_products.cuh"

namespace tessera::sm90 {

template <class Shape, class In, class Out>
struct Consumer : TileFinisher<Shape, In, Out> {
  using Finisher = TileFinisher<Shape, In, Out>;
  using Memory = typename Finisher::Memory;
  using Finisher::consumer, Finisher::memory, Finisher::p, Finisher::thread;

  template <ProgramKind kProgram>
  __device__ __forceinline__ void run(float unit) const {
    // Named barriers 1 and 2: whose turn it is to multiply.
    const int turn = 1 + consumer, other_turn = 2 - consumer;
    TileProducts<Shape, In, Memory> products;
    const KRange k = k_range<Shape>(p);
    if constexpr (Shape::kSplit) {  // one tile: nobody to take turns with
      if (consumer == 1) return;
      RingPosition<Memory::kStages> at(0);
      products.multiply(k.end - k.begin, memory, at, thread, true);
      wait(memory.table_full(consumer), 0);
      if (Finisher::template kMayAdd<kProgram> && p.residual) wait(memory.residual_full(consumer), 0);
      products.finish_products(memory, at, thread);
      share_sums<Shape>(products.d, memory, split_here<Shape>(p), thread);
      Finisher::template finish<kProgram>(products.d, unit);
      return end_sharing();
    }
    if (consumer == 1) signal_threads(other_turn, 2 * kWarpgroup);  // the first turn is consumer 0's
    // Everything follows from the tile's number in this block, so that nothing else is kept beside the sums.
    for (uint32_t tile = consumer; tile_exists(tile); tile += 2) {
      RingPosition<Memory::kStages> at(tile * p.k_blocks);
      sync_threads(turn, 2 * kWarpgroup);
      products.multiply(p.k_blocks, memory, at, thread, tile < 2);
      signal_threads(other_turn, 2 * kWarpgroup);
      wait(memory.table_full(consumer), tile >> 1 & 1);
      if (Finisher::template kMayAdd<kProgram> && p.residual) wait(memory.residual_full(consumer), tile >> 1 & 1);
      products.finish_products(memory, at, thread);
      Finisher::template finish<kProgram>(products.d, unit);
    }
  }
  __device__ __forceinline__ bool tile_exists(uint32_t tile) const {
    return blockIdx.x + tile * p.tiles.blocks < p.tiles.count;
  }

  __device__ __forceinline__ void run_program() const {
    constexpr bool kByte = sizeof(Out) == 1;
    const float unit = kByte ? 1.0f / *p.y_scale : 1.0f;
    if constexpr (Shape::kGates && (kByte || Shape::kRunsAny)) {
      if (p.gated) return run<ProgramKind::kGate>(unit);
    }
    if (Shape::kSplit || !p.act.present) {
      if (!kByte && p.residual) return run < kByte ? ProgramKind::kPlain : ProgramKind::kResidual > (unit);
      return run<ProgramKind::kPlain>(unit);
    }
    if constexpr (!Shape::kSplit) run_activation(unit);
  }
  __device__ __forceinline__ void run_activation(float unit) const {
    constexpr bool kE4m3 = std::is_same_v<Out, __nv_fp8_e4m3>;
    if constexpr (Shape::kRunsAny) {
      if (p.gain != nullptr || p.residual || p.act.relu) return run<ProgramKind::kAny>(unit);
    }
    if constexpr (kE4m3) {
      if (unit > 0x1p-7f && unit < 0x1p10f) return run<ProgramKind::kInHalf>(unit);  // activate_half_pairs
    }
    run<ProgramKind::kActivation>(unit);
  }
};

template <class Shape, class In, class Out>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    gemm(const __grid_constant__ GemmMaps maps, const __grid_constant__ GemmParams p) {
  using Memory = GemmMemory<Shape, Out>;
  extern __shared__ __align__(1024) uint8_t shared[];  // kSwizzleAtomBytes
  const Memory memory{cuda::shared_address(shared)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < Memory::kStages; ++i) {
      init_barrier(memory.full(i), Shape::kResident ? 1 : 2);  // x, and w where it travels
      init_barrier(memory.empty(i), 1);
    }
    for (int i = 0; i < Shape::kConsumers; ++i) {
      init_barrier(memory.table_full(i), p.residual ? 32 : 64);
      init_barrier(memory.table_empty(i), kWarpgroup / 32);
      init_barrier(memory.residual_full(i), 1);
    }
    init_barrier(memory.residual_empty(), kWarpgroup / 32);
    if constexpr (Shape::kSplit) init_barrier(memory.received(), 1);
    for (int i = 0; i < Memory::kResidentParts; ++i) init_barrier(memory.w_full(i), 1);
    fence_barrier_init();
    if constexpr (Shape::kSplit) expect_sums<Shape>(memory, p.split);
    prefetch(&maps.x);
    prefetch(&maps.w);
    cuda::let_next_kernel_start();
  }
  __syncthreads();
  // Only x, the scales of its rows, the residual, y and vectors that are no constants belong to other kernels: the
  // weight's first tiles are loaded while the kernel before this one still runs. Whoever stores y has waited for
  // products with x.
  const int warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    give_registers<Shape::kSpareRegisters>();
    if (threadIdx.x == 0) {
      cuda::wait_for_earlier_kernels();
      if constexpr (Shape::kWindows) {
        load_windows<Shape, In, Memory, true>(&maps.x, p, memory);
      } else {
        load_operand<Shape, In, Memory, true>(&maps.x, p, memory);
      }
    }
    if (threadIdx.x == 32) {
      if constexpr (Shape::kResident) {
        load_resident<Shape, In>(&maps.w, p, memory);
      } else if constexpr (Shape::kWindows) {
        load_windows<Shape, In, Memory, false>(&maps.w, p, memory);
      } else {
        load_operand<Shape, In, Memory, false>(&maps.w, p, memory);
      }
    }
    // Bias and gain have the type of 16-bit results; beside 8-bit operands and results they are f16.
    using Vector = std::conditional_t<std::is_same_v<Out, __nv_bfloat16>, __nv_bfloat16, __half>;
    if (threadIdx.x / 32 == 2 || (threadIdx.x / 32 == 3 && !p.residual)) {
      if (Shape::kTokens || p.computed) cuda::wait_for_earlier_kernels();
      load_tables<Shape, In, Vector>(p, memory);
    }
    if (threadIdx.x == 96 && p.residual) {
      cuda::wait_for_earlier_kernels();
      load_residuals<Shape>(&maps.residual, p, memory);
    }
  } else {
    take_registers<Shape::kRegisters>();
    Consumer<Shape, In, Out>{{p, memory, warpgroup - 1, static_cast<int>(threadIdx.x % kWarpgroup)}}.run_program();
  }
}

}  // namespace tessera::sm90
