// SPDX-License-Identifier: Apache-2.0
// The normal mainloop (tiles/sm90/gemm.cuh) bound to a problem: tensor maps, parameters, launch. Host code of .cu
// files.
#pragma once

#include <string>
#include <type_traits>

#include "ops/matmul/sm90_contract.h"
#include "tiles/cuda/launch.cuh"
#include "tiles/sm90/gemm_run.cuh"
#include "tiles/sm90/tensor_map.cuh"

namespace tessera {

// A kernel and the numbers that launching it needs.
struct PickedGemm {
  void (*function)(sm90::GemmMaps, sm90::GemmParams);
  int rows, cols, threads, shared_bytes;
  bool resident;
  int split;
};

template <class Shape, class In, class Out>
PickedGemm pick_gemm(int split = 1) {
  return {sm90::gemm<Shape, In, Out>,           Shape::kRows,     Shape::kCols, Shape::kThreads,
          sm90::GemmMemory<Shape, Out>::kBytes, Shape::kResident, split};
}

// Tile shapes by name. 128x192 reads least from shared memory for each product and hides the longest programs; 128x128
// leaves fewer blocks idle where rows are few; 128x192 w keeps its rows of w (codes to codes only: a tile of 16-bit
// residual has no room beside them).
using Gemm128x192 = sm90::GemmShape<192>;
using Gemm128x128 = sm90::GemmShape<128>;
using Gemm128x192Resident = sm90::GemmShape<192, /*kPromoted=*/false, /*kResident=*/true>;
template <int kCols>
using SplitGemm = sm90::GemmShape<kCols, /*kPromoted=*/false, /*kResident=*/false, /*kSplit=*/true>;
template <class In, class Out>
PickedGemm pick_gemm(const std::string& config) {
  if constexpr (sizeof(In) == 1 && std::is_same_v<In, Out>) {
    if (config == kResidentConfig) return pick_gemm<Gemm128x192Resident, In, Out>();
  }
  const bool narrow = config.rfind(gemm_name(128, 1), 0) == 0;
  if constexpr (sizeof(Out) == 2) {
    if (const int split = split_of(config); split > 1)
      return narrow ? pick_gemm<SplitGemm<128>, In, Out>(split) : pick_gemm<SplitGemm<192>, In, Out>(split);
  }
  return narrow ? pick_gemm<Gemm128x128, In, Out>() : pick_gemm<Gemm128x192, In, Out>();
}

class GemmKernel final : public Kernel {
 public:
  GemmKernel(const char* name, const Problem& problem, const PickedGemm& picked, int sms)
      : name_(name), problem_(problem), p_(MatmulProblem::of(problem_)), picked_(picked), sms_(sms) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.m * p_.n == 0) return {};
    const int64_t in_bytes = info(p_.x.element).bits / 8;
    const int64_t w_rows = stored_w_rows(problem_);
    const auto tile_rows = static_cast<uint32_t>(divide_up(p_.m, picked_.rows)),
               tile_cols = static_cast<uint32_t>(divide_up(w_rows, picked_.cols));
    const auto sms = static_cast<uint32_t>(sms_);
    sm90::GemmParams params{
        .tiles = picked_.resident    ? sm90::share_resident_tiles(tile_rows, tile_cols, sms, problem_.backward)
                 : picked_.split > 1 ? sm90::share_split_tiles(tile_rows, tile_cols, p_.m >= p_.n, problem_.backward)
                                     : sm90::share_tiles(tile_rows, tile_cols, sms, p_.m >= p_.n, problem_.backward),
        .k_blocks = static_cast<int>(divide_up(p_.k * in_bytes, 128)),
        .m = static_cast<int>(p_.m),
        .cols = static_cast<int>(p_.cols),
        .split = picked_.split,
        .y = out[0].data,
        .x_scale = static_cast<const float*>(in[0].scale),
        .w_scale = static_cast<const float*>(in[1].scale),
        .w_scale_stride = p_.w.scale.granularity == Granularity::kChannel ? 1 : 0,
        .y_scale = static_cast<const float*>(out[0].scale),
        .gated = p_.then->gated()};
    sm90::GemmMaps maps{};
    TS_ASSIGN(maps.x, cuda::make_matrix_map(in[0].data, p_.x.element, p_.m, p_.k, p_.x_row_stride, picked_.rows));
    if (params.gated) {
      TS_ASSIGN(maps.w, halves(in[1].data, w_rows / 2));
    } else {
      TS_ASSIGN(maps.w, cuda::make_matrix_map(in[1].data, p_.w.element, w_rows, p_.k, p_.k, picked_.cols));
    }
    for (const Step& s : p_.then->steps) {
      const TensorView* operand = s.operand >= 0 ? &in[static_cast<size_t>(s.operand)] : nullptr;
      if (s.kind == StepKind::bias) params.bias = operand->data;
      if (s.kind == StepKind::scale) params.gain = operand->data;
      if (operand_of(s.kind) == StepOperand::kVector) params.computed = params.computed || !operand->desc->constant;
      if (names_function(s.kind)) params.act = smooth_activation(s.fn);
      if (s.kind == StepKind::residual) {
        params.residual = true;
        const RowView rows = operand->desc->rows();
        params.residual_rows = static_cast<int>(rows.rows);
        TS_ASSIGN(maps.residual,
                  cuda::make_tensor_map<2>(
                      {operand->data, p_.y.element, {p_.n, rows.rows}, {rows.row_stride}, {32, picked_.rows}}));
      }
    }
    return cuda::launch_overlapping(name_, picked_.function, int64_t{params.tiles.blocks} * picked_.split,
                                    picked_.threads, static_cast<size_t>(picked_.shared_bytes), stream.handle,
                                    picked_.split, maps, params);
  }

 private:
  // w whose gate's rows and the others come in turns (tiles/sm90/gated_columns.h).
  Result<CUtensorMap> halves(const void* w, int64_t rows) const {
    return cuda::make_tensor_map<4>(
        {w,
         p_.w.element,
         {p_.k, sm90::kGateGroup, 2, rows / sm90::kGateGroup},
         {p_.k, rows * p_.k, sm90::kGateGroup * p_.k},
         {128 * 8 / info(p_.w.element).bits, sm90::kGateGroup, 2, picked_.cols / sm90::kGatePair}});
  }

  const char* const name_;
  const Problem problem_;
  const MatmulProblem p_;
  const PickedGemm picked_;
  const int sms_;
};

inline Result<std::unique_ptr<Kernel>> bind_gemm(const char* name, const Problem& problem, const PickedGemm& picked) {
  int device = 0, sms = 0;
  TS_TRY(cuda::cuda_status(name, cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status(name, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)));
  TS_TRY(cuda::allow_shared_memory(name, picked.function, static_cast<size_t>(picked.shared_bytes)));
  return std::unique_ptr<Kernel>(std::make_unique<GemmKernel>(name, problem, picked, sms));
}

// 8-bit codes: results are such codes again, or 16 bits wide. `pick` has a template parameter for each.
template <class In, class Pick>
Result<std::unique_ptr<Kernel>> bind_codes(const char* name, const Problem& problem, Pick pick) {
  switch (problem.out[0].type.element) {
    case Element::f16:
      return bind_gemm(name, problem, pick.template operator()<__half>());
    case Element::bf16:
      return bind_gemm(name, problem, pick.template operator()<__nv_bfloat16>());
    default:
      return bind_gemm(name, problem, pick.template operator()<In>());
  }
}

}  // namespace tessera
