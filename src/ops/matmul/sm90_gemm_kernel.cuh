// SPDX-License-Identifier: Apache-2.0
// The normal mainloop bound to a matmul (ops/gemm_kernel.cuh): its tile shapes, and where its operands lie. Host code
// of .cu files.
#pragma once

#include <string>

#include "ops/gemm_kernel.cuh"
#include "ops/matmul/sm90_contract.h"

namespace tessera {

// Tile shapes by name. 128x192 reads least from shared memory for each product and hides the longest programs; 128x128
// leaves fewer blocks idle where rows are few; 128x192 w keeps its rows of w (codes to codes only: a tile of 16-bit
// residual has no room beside them).
using Gemm128x192Resident = sm90::GemmShape<192, /*kPromoted=*/false, /*kResident=*/true>;
template <int kCols, bool kSplit, bool kTokens>
using MatmulGemm =
    sm90::GemmShape<kCols, /*kPromoted=*/false, /*kResident=*/false, kSplit, /*kWindows=*/false, kTokens>;
template <class In, class Out, bool kTokens = false>
PickedGemm pick_gemm(const std::string& config) {
  if constexpr (sizeof(In) == 1 && std::is_same_v<In, Out>) {
    if (config == kResidentConfig) return pick_gemm<Gemm128x192Resident, In, Out>();
  }
  const bool narrow = config.rfind(gemm_name(128, 1), 0) == 0;
  if constexpr (sizeof(Out) == 2) {
    if (const int split = split_of(config); split > 1)
      return narrow ? pick_gemm<MatmulGemm<128, true, kTokens>, In, Out>(split)
                    : pick_gemm<MatmulGemm<192, true, kTokens>, In, Out>(split);
  }
  return narrow ? pick_gemm<MatmulGemm<128, false, kTokens>, In, Out>()
                : pick_gemm<MatmulGemm<192, false, kTokens>, In, Out>();
}

// w whose gate's rows and the others come in turns (tiles/sm90/gated_columns.h).
inline Result<CUtensorMap> gated_map(const void* w, const Product& p, int64_t rows, int tile_cols) {
  return cuda::make_tensor_map<4>(
      {w,
       p.w.element,
       {p.k, sm90::kGateGroup, 2, rows / sm90::kGateGroup},
       {p.k, rows * p.k, sm90::kGateGroup * p.k},
       {128 * 8 / info(p.w.element).bits, sm90::kGateGroup, 2, tile_cols / sm90::kGatePair}});
}

inline Product product_of_matmul(const Problem& problem) { return MatmulProblem::of(problem); }
inline Result<GemmOperands> operands_of_matmul(const Problem& problem, const TensorView& x, const TensorView& w,
                                               const PickedGemm& picked) {
  const MatmulProblem p = MatmulProblem::of(problem);
  const int64_t w_rows = stored_w_rows(problem);
  GemmOperands operands{.x = {},
                        .w = {},
                        .tile_cols = static_cast<uint32_t>(divide_up(w_rows, picked.cols)),
                        .k_blocks = static_cast<int>(gemm_blocks_of_k(p))};
  TS_ASSIGN(operands.x, cuda::make_matrix_map(x.data, p.x.element, p.m, p.k, p.x_row_stride, picked.rows));
  TS_ASSIGN(operands.w, p.then->gated() ? gated_map(w.data, p, w_rows / 2, picked.cols)
                                        : cuda::make_matrix_map(w.data, p.w.element, w_rows, p.k, p.k, picked.cols));
  return operands;
}
inline constexpr GemmReader kMatmulReader{product_of_matmul, operands_of_matmul};

}  // namespace tessera
