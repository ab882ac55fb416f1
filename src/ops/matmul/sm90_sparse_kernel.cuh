// SPDX-License-Identifier: Apache-2.0
// The sparse mainloop (tiles/sm90/sparse.cuh) bound to a matmul. Host code of .cu files.
#pragma once

#include "ops/matmul/sm90_sparse_contract.h"
#include "tiles/cuda/launch.cuh"
#include "tiles/sm90/sparse.cuh"
#include "tiles/sm90/tensor_map.cuh"

namespace tessera {

class SparseKernel final : public Kernel {
 public:
  using Function = void (*)(CUtensorMap, sm90::SparseParams);
  SparseKernel(const char* name, const Problem& problem, Function function, int sms)
      : name_(name), problem_(problem), p_(MatmulProblem::of(problem_)), function_(function), sms_(sms) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.m * p_.n == 0) return {};
    using Shape = sm90::SparseShape;
    const int bits = info(p_.w.element).bits;
    const int64_t w_tiles = Sparse24Tiles::tiles_of_rows(p_.n);
    sm90::SparseParams params{.tiles = sm90::share_tiles(static_cast<uint32_t>(divide_up(p_.m, Shape::kTokens)),
                                                         static_cast<uint32_t>(divide_up(p_.n, Shape::kChannels)),
                                                         static_cast<uint32_t>(sms_), p_.m >= p_.n, problem_.backward),
                              .k_blocks = static_cast<int>(Sparse24Tiles::tiles_of_k(bits, p_.k)),
                              .m = static_cast<int>(p_.m),
                              .cols = static_cast<int>(p_.cols),
                              .w_tiles = static_cast<int>(w_tiles),
                              .w = in[1].data,
                              .y = out[0].data,
                              .x_scale = static_cast<const float*>(in[0].scale),
                              .w_scale = static_cast<const float*>(in[1].scale),
                              .w_scale_stride = p_.w.scale.granularity == Granularity::kChannel ? 1 : 0,
                              .y_scale = static_cast<const float*>(out[0].scale)};
    for (const Step& s : p_.then->steps) {
      const TensorView* operand = s.operand >= 0 ? &in[static_cast<size_t>(s.operand)] : nullptr;
      if (s.kind == StepKind::bias) params.bias = operand->data;
      if (s.kind == StepKind::scale) params.gain = operand->data;
      if (operand_of(s.kind) == StepOperand::kVector) params.computed = params.computed || !operand->desc->constant;
      if (names_function(s.kind)) params.act = smooth_activation(s.fn);
      if (s.kind == StepKind::residual)
        params.residual = operand->data, params.residual_stride = operand->desc->rows().row_stride;
    }
    TS_ASSIGN(const CUtensorMap x,
              cuda::make_matrix_map(in[0].data, p_.x.element, p_.m, p_.k, p_.x_row_stride, Shape::kTokens));
    return cuda::launch_overlapping(name_, function_, params.tiles.blocks, Shape::kThreads, Shape::kBytes,
                                    stream.handle, 1, x, params);
  }

 private:
  const char* const name_;
  const Problem problem_;
  const MatmulProblem p_;
  const Function function_;
  const int sms_;
};

inline Result<std::unique_ptr<Kernel>> bind_sparse(const char* name, const Problem& problem,
                                                   SparseKernel::Function function) {
  int device = 0, sms = 0;
  TS_TRY(cuda::cuda_status(name, cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status(name, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)));
  TS_TRY(cuda::allow_shared_memory(name, function, sm90::SparseShape::kBytes));
  return std::unique_ptr<Kernel>(std::make_unique<SparseKernel>(name, problem, function, sms));
}

// 8-bit codes: results are such codes again, or 16 bits wide.
template <class In>
Result<std::unique_ptr<Kernel>> bind_sparse_codes(const char* name, const Problem& problem) {
  switch (problem.out[0].type.element) {
    case Element::f16:
      return bind_sparse(name, problem, sm90::sparse_gemm<In, __half>);
    case Element::bf16:
      return bind_sparse(name, problem, sm90::sparse_gemm<In, __nv_bfloat16>);
    default:
      return bind_sparse(name, problem, sm90::sparse_gemm<In, In>);
  }
}

}  // namespace tessera
