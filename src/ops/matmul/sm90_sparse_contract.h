// SPDX-License-Identifier: Apache-2.0
// Matmuls by 2:4 sparse weights on Hopper's sparse wgmma (tiles/sm90/sparse.cuh), before anything runs.
#pragma once

#include "ops/matmul/sm90_contract.h"
#include "types/sparse24_tiles.h"

namespace tessera {

inline Verdict accepts_sparse_on_wgmma(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(is_sparse24(problem), "multiplies 2:4 sparse weights, which were not asked for");
  TS_REQUIRE(!is_promoted(problem), kFastSums);
  TS_REQUIRE(p.batch == 1 && p.constant_w, "multiplies by one constant weight");
  const int64_t unit = copy_unit(p.x.element);
  TS_REQUIRE(p.k % unit == 0 && p.x_row_stride % unit == 0, "rows of x must be multiples of 16 bytes: k is ", p.k);
  TS_REQUIRE(!has_folded_norm(problem), kNoFoldedNorm);
  TS_REQUIRE(!keeps_columns(problem), kNoKeptColumns);
  TS_REQUIRE(problem.out.size() == 1, "writes no other results beside y");
  if (Verdict v = accepts_wgmma_types(p, {}); !v) return v;
  return accepts_epilogue(problem, p, vector_of_wgmma(p), {}, kWgmmaSteps);
}

inline std::vector<OperandLayout> layouts_of_sparse(const Problem&) { return {Layout::kRows, Layout::kSparse24Tiles}; }

inline Arithmetic sparse_arithmetic(const Problem& problem) {
  Arithmetic a = gemm_arithmetic(problem);
  a.instruction.insert(a.instruction.find(')'), ".SP");  // wgmma e4m3 (QGMMA.SP)
  return a;
}

// One accumulator along k, whose instructions take twice as many products as dense ones, half of them zeros.
inline Emulation emulate_sparse(const Problem& problem, std::span<const TensorView> in,
                                std::span<const TensorView> out) {
  const TensorCore* dense = wgmma_core(problem.in[0].type.element);
  const TensorCore* core = dense == nullptr ? nullptr : dense == &kWgmmaE4m3 ? &kWgmmaSparseE4m3 : &kWgmmaSparseHalf;
  return emulate_wgmma(problem, in, out, {core}, Mainloop::kNormal);
}

inline Variant sparse_variant(const char* name, Verdict (*accepts)(const Problem&),
                              Result<std::unique_ptr<Kernel>> (*bind)(const Problem&), SassPromise sass) {
  return {.name = name,
          .arch = Arch::sm90,
          .accepts = accepts,
          .arithmetic = sparse_arithmetic,
          .layouts = layouts_of_sparse,
          .emulate = emulate_sparse,
          .operand_align = 16,
          .sass = std::move(sass),
          .bind = bind};
}

}  // namespace tessera
