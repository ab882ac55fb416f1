// SPDX-License-Identifier: Apache-2.0
// The program of the normal mainloop (gemm.cuh) on a warpgroup's finished tile, and the way of its results to
// memory.
#pragma once

#include <type_traits>

#include "archs/cuda/instructions.cuh"
#include "archs/planted_fault.h"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "tiles/cuda/elements.cuh"
#include "tiles/sm90/finish_fours.cuh"
#include "tiles/sm90/gemm.cuh"
#include "tiles/sm90/gemm_share.cuh"

namespace tessera::sm90 {

template <class Shape, class In, class Out>
struct TileFinisher {
  using Memory = GemmMemory<Shape, Out>;
  using Sums = SumOf<In>[Shape::kMma][Shape::kCols / 2];

  const GemmParams& p;
  const Memory memory;
  const int consumer, thread;

  template <ProgramKind kProgram>
  static constexpr bool kMayAdd = sizeof(Out) == 2 &&
                                  (kProgram == ProgramKind::kResidual || kProgram == ProgramKind::kAny);

  // Factors and biases of four of a thread's columns.
  struct Columns {
    uint4 pair[2];
    __device__ __forceinline__ float factor(int i) const {
      return __uint_as_float(i % 2 == 0 ? pair[i / 2].x : pair[i / 2].z);
    }
    __device__ __forceinline__ float bias(int i) const {
      return __uint_as_float(i % 2 == 0 ? pair[i / 2].y : pair[i / 2].w);
    }
  };
  static __device__ __forceinline__ Columns load_columns(uint32_t from) {
    return {cuda::load_shared_four(from), cuda::load_shared_four(from + 64)};
  }
  static __device__ __forceinline__ Columns load_columns_here(uint32_t from) {
    const uint2 a = cuda::load_shared_pair_here(from), b = cuda::load_shared_pair_here(from + 8),
                c = cuda::load_shared_pair_here(from + 64), d = cuda::load_shared_pair_here(from + 72);
    return {uint4{a.x, a.y, b.x, b.y}, uint4{c.x, c.y, d.x, d.y}};
  }

  // Sums of the thread's rows, kCount of each group of 64, times the scales of their rows, in place: there are no
  // registers to keep the scales in.
  template <int kCount>
  __device__ __forceinline__ void scale_tokens(SumOf<In> (&d)[Shape::kMma][kCount], int lane) const {
    const uint32_t scales = memory.tokens(consumer) + result_row(lane) * 4;
#pragma unroll
    for (int r = 0; r < Shape::kMma * 2; ++r) {
      const float scale = cuda::load_shared_float(scales + (r / 2 * 64 + r % 2 * 8) * 4);
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) d[r / 2][i / 2 * 4 + r % 2 * 2 + i % 2] *= scale;
    }
  }

  // Results of a tile. Thanks to the order of w's rows a thread has eight neighbouring columns of each 32: four threads
  // fill whole sectors of memory.
  template <ProgramKind kProgram>
  __device__ __forceinline__ void finish(Sums& d, float unit) const {
    constexpr int kRows = Shape::kMma * 2, kFours = Shape::kCols / 16;
    int lane = thread;
    asm volatile(
        ""
        : "+r"(lane));  // so that nothing below is made before the products and kept: there are no registers for it
    if constexpr (Shape::kTokens && !Shape::kSplit) scale_tokens(d, lane);
    const uint32_t table = memory.table(consumer), column_table = table + lane % 4 * 16,
                   gain_table = table + Shape::kCols * 8 + lane % 4 * 8;
    constexpr int kShare = kProgram == ProgramKind::kGate ? 2 : 1;  // columns of sums to a result
    const uint2 tile = cuda::load_shared_pair(table + Shape::kCols * 12);
    const int first_row = static_cast<int>(tile.x) + result_row(lane),
              first_col = static_cast<int>(tile.y) / kShare + lane % 4 * 8;
    const int rows_left = p.m - first_row;
    int cols_left = p.cols - first_col;
    if constexpr (Shape::kWindows)
      cols_left = static_cast<int>(cuda::load_shared_pair(table + Shape::kCols * 12 + 8).x) - first_col;
    Out* const first = static_cast<Out*>(p.y) + int64_t{first_row} * p.cols + first_col;
    const uint32_t residual =
        memory.residual() + (planted(Fault::kResidualSwizzle) ? result_row(lane) * 64 + lane % 4 * 16
                                                              : swizzled_offset<64>(result_row(lane), lane % 4 * 16));
    float v[kRows * 4];
    uint32_t y[2][kRows][sizeof(Out)];
    constexpr bool kAhead = !Shape::kSplit && !Shape::kTokens;  // where there are registers for it
    Columns columns;
    if constexpr (kAhead) columns = load_columns(column_table);
    [[maybe_unused]] GroupTurn turn{split_here<Shape>(p)};
    [[maybe_unused]] SumOf<In> whole[Shape::kMma][8];
    [[maybe_unused]] const int rank = Shape::kSplit ? static_cast<int>(rank_in_cluster()) : 0;
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      Columns now = columns;
      if (kAhead && four + 1 < kFours) columns = load_columns(column_table + (four + 1) * 128);
      if constexpr (!kAhead && !Shape::kSplit) now = load_columns_here(column_table + four * 128);
      if constexpr (Shape::kSplit) {  // 32 columns at a time go to one block or another
        if (four > 0 && four % 2 == 0) turn.next();
        if (turn.block != rank) continue;
        now = load_columns(column_table + four * 128);
        whole_sums<Shape>(whole, d, four, turn, memory, lane);
        if constexpr (Shape::kTokens) scale_tokens(whole, lane);
      }
      uint2 add[kRows];
      if constexpr (kMayAdd<kProgram>) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const uint32_t from =
              residual + four / 2 * Memory::kResidualBox + (r / 2 * 64 + r % 2 * 8) * 64 + four % 2 * 8;
          add[r] = kProgram == ProgramKind::kResidual || p.residual ? cuda::load_shared_pair_here(from) : uint2{};
        }
      }
      float4 gains{1.0f, 1.0f, 1.0f, 1.0f};
      if (kProgram == ProgramKind::kAny && p.gain != nullptr) {
        const uint2 low = cuda::load_shared_pair(gain_table + four * 64),
                    high = cuda::load_shared_pair(gain_table + four * 64 + 32);
        gains = {__uint_as_float(low.x), __uint_as_float(low.y), __uint_as_float(high.x), __uint_as_float(high.y)};
      }
      const auto affine = [&](int r, int c) {
        const int at = c / 2 * 4 + r % 2 * 2 + c % 2;
        return fmaf(static_cast<float>(Shape::kSplit ? whole[r / 2][at] : d[r / 2][four * 8 + at]), now.factor(c),
                    now.bias(c ^ planted(Fault::kNeighboursBias)));
      };
      if constexpr (kProgram == ProgramKind::kGate) {  // two results of each row
        float gate[kRows * 2];
#pragma unroll
        for (int i = 0; i < kRows * 2; ++i) gate[i] = affine(i / 2, i % 2);
        if constexpr (Shape::kRunsAny) {
          p.act.template run<kRows * 2>(gate);
        } else {
          p.act.template run_smooth<kRows * 2>(gate);  // gemm_configs gives relu the other tile
        }
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
      if constexpr (kShare == 1 || sizeof(Out) == 1)
        finish_fours<Out, kProgram, kRows>(y[done % 2], v, gains, add, p.act, unit);
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
};

}  // namespace tessera::sm90
