// SPDX-License-Identifier: Apache-2.0
// The normal mainloop (tiles/sm90/gemm.cuh) bound to a product, of matmul or conv2d: tensor maps, parameters, launch.
// Host code of .cu files.
#pragma once

#include <string>
#include <type_traits>

#include "op/problem.h"
#include "op/variant.h"
#include "ops/wgmma_contract.h"
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

// Operands as TMA loads them.
struct GemmOperands {
  CUtensorMap x, w;
  uint32_t tile_cols;  // columns of tiles
  int k_blocks;
  sm90::ImageWindows windows = {};
};

// How an op's problem is such a product.
struct GemmReader {
  Product (*product)(const Problem&);
  Result<GemmOperands> (*operands)(const Problem&, const TensorView& x, const TensorView& w, const PickedGemm&);
};

class GemmKernel final : public Kernel {
 public:
  GemmKernel(const char* name, const Problem& problem, const GemmReader& reader, const PickedGemm& picked, int sms)
      : name_(name), problem_(problem), reader_(reader), p_(reader.product(problem_)), picked_(picked), sms_(sms) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.m * p_.n == 0) return {};
    TS_ASSIGN(const GemmOperands operands, reader_.operands(problem_, in[0], in[1], picked_));
    sm90::GemmMaps maps{.x = operands.x, .w = operands.w, .residual = {}};
    sm90::GemmParams params{.tiles = tiles(operands.tile_cols),
                            .k_blocks = operands.k_blocks,
                            .m = static_cast<int>(p_.m),
                            .cols = static_cast<int>(p_.cols),
                            .split = picked_.split,
                            .y = out[0].data,
                            .x_scale = static_cast<const float*>(in[0].scale),
                            .w_scale = static_cast<const float*>(in[1].scale),
                            .w_scale_stride = p_.w.scale.granularity == Granularity::kChannel ? 1 : 0,
                            .y_scale = static_cast<const float*>(out[0].scale),
                            .gated = p_.then->gated(),
                            .windows = operands.windows};
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
  sm90::GemmTiles tiles(uint32_t cols) const {
    const auto rows = static_cast<uint32_t>(divide_up(p_.m, picked_.rows)), sms = static_cast<uint32_t>(sms_);
    if (picked_.resident) return sm90::share_resident_tiles(rows, cols, sms, problem_.backward);
    if (picked_.split > 1) return sm90::share_split_tiles(rows, cols, p_.m >= p_.n, problem_.backward);
    return sm90::share_tiles(rows, cols, sms, p_.m >= p_.n, problem_.backward);
  }

  const char* const name_;
  const Problem problem_;
  const GemmReader reader_;
  const Product p_;
  const PickedGemm picked_;
  const int sms_;
};

inline Result<std::unique_ptr<Kernel>> bind_gemm(const char* name, const Problem& problem, const GemmReader& reader,
                                                 const PickedGemm& picked) {
  int device = 0, sms = 0;
  TS_TRY(cuda::cuda_status(name, cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status(name, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)));
  TS_TRY(cuda::allow_shared_memory(name, picked.function, static_cast<size_t>(picked.shared_bytes)));
  return std::unique_ptr<Kernel>(std::make_unique<GemmKernel>(name, problem, reader, picked, sms));
}

// 8-bit codes: results are such codes again, or 16 bits wide. `pick` has a template parameter for each.
template <class In, class Pick>
Result<std::unique_ptr<Kernel>> bind_codes(const char* name, const Problem& problem, const GemmReader& reader,
                                           Pick pick) {
  switch (problem.out[0].type.element) {
    case Element::f16:
      return bind_gemm(name, problem, reader, pick.template operator()<__half>());
    case Element::bf16:
      return bind_gemm(name, problem, reader, pick.template operator()<__nv_bfloat16>());
    default:
      return bind_gemm(name, problem, reader, pick.template operator()<In>());
  }
}

}  // namespace tessera
