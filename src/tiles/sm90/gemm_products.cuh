// SPDX-License-Identifier: Apache-2.0
// The products of a tile in the normal mainloop (gemm.cuh).
#pragma once

#include "archs/planted_fault.h"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "tiles/sm90/gemm.cuh"

namespace tessera::sm90 {

// The ring as a consumer sees it.
template <int kStages>
struct RingPosition {
  uint32_t stage, parity;
  __device__ explicit RingPosition(uint32_t blocks) : stage(blocks % kStages), parity(blocks / kStages & 1) {}
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Products of the block of K in a stage; `w_place` as GemmMemory::w has it.
template <class Shape, class In, class Memory>
__device__ __forceinline__ void multiply_block(SumOf<In> (&d)[Shape::kMma][Shape::kCols / 2], const Memory& memory,
                                               uint32_t stage, uint32_t w_place, bool accumulate) {
  const uint64_t x = operand_descriptor(memory.x(stage)), w = operand_descriptor(memory.w(w_place));
#pragma unroll
  for (int i = 0; i < Shape::kMma; ++i) pin(d[i]);
  begin_products();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < Shape::kMma; ++i) {
      Products<In, Shape::kCols>::shared(d[i], x + i * kDescriptorStep64Rows + k * kDescriptorStepK,
                                         w + k * kDescriptorStepK, accumulate || k > 0);
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

  // `first`: of the consumer's tiles. Later ones of kResident find w where it was.
  __device__ __forceinline__ void multiply(int k_blocks, const Memory& memory, RingPosition<Memory::kStages>& at,
                                           int thread, bool first) {
    uint32_t last = 0;
    if constexpr (Shape::kPromoted) {
      int kb = 0;
#pragma unroll 1
      for (; kb + 1 < k_blocks;
           kb += 2) {  // two at a time: registers have no index; none under way at the end, which ptxas would serialise
        start(part[0], memory, at);
        last = step(at);
        start(part[1], memory, at);
        wait_products<1>();
        add(part[0], kb == 0, memory, last, thread);  // while the second block's are made
        last = step(at);
        wait_products<0>();
        add(part[1], false, memory, last, thread);
      }
      if (kb < k_blocks) {
        start(part[0], memory, at);
        last = step(at);
        wait_products<0>();
        add(part[0], kb == 0, memory, last, thread);
      }
    } else {
      for (int kb = 0; kb < k_blocks; ++kb) {
        if (Shape::kResident && first) wait(memory.w_full(kb), 0);
        if constexpr (!planted(Fault::kNoWait)) wait(memory.full(at.stage), at.parity ^ planted(Fault::kStageParity));
        if (!planted(Fault::kLastBlockOfK) || kb == 0 || kb + 1 < k_blocks)
          multiply_block<Shape, In>(d, memory, at.stage, Shape::kResident ? kb : at.stage, kb > 0);
        wait_products<1>();  // the block before this one is done: its stage is free
        if (kb > 0 && thread == 0) arrive(memory.empty(last));
        last = step(at);
      }
    }
  }
  // Frees the last block's stage, too.
  __device__ __forceinline__ void finish_products(const Memory& memory, const RingPosition<Memory::kStages>& at,
                                                  int thread) {
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
  static __device__ __forceinline__ void start(Sums& to, const Memory& memory,
                                               const RingPosition<Memory::kStages>& at) {
    wait(memory.full(at.stage), at.parity);
    multiply_block<Shape, In>(to, memory, at.stage, at.stage, planted(Fault::kNoPromotion) && at.stage > 0);
  }
  __device__ __forceinline__ void add(Sums& from, bool first, const Memory& memory, uint32_t stage, int thread) {
    pin(from[0]);
    if (thread == 0) arrive(memory.empty(stage));
#pragma unroll
    for (int i = 0; i < Shape::kCols / 2; ++i) d[0][i] = first ? from[0][i] : d[0][i] + from[0][i];
  }
};

}  // namespace tessera::sm90
