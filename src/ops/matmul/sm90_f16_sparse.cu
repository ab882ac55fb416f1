// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_f16_sparse: f16 and bf16 on sparse wgmma.
#include "ops/matmul/sm90_sparse_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_sparse_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_f16_sparse";

Verdict accepts(const Problem& problem) {
  TS_REQUIRE(is_half(problem.in[0].type.element), "multiplies f16 or bf16, not ", to_string(problem.in[0].type));
  return accepts_sparse_on_wgmma(problem);
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  const bool f16 = problem.in[0].type.element == Element::f16;
  return bind_sparse(kName, problem,
                     f16 ? sm90::sparse_gemm<__half, __half> : sm90::sparse_gemm<__nv_bfloat16, __nv_bfloat16>);
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& matmul_sm90_f16_sparse() {
  static const Variant kVariant = sparse_variant(kName, accepts, bind, shows({"HGMMA.SP"}));
  return kVariant;
}

}  // namespace tessera
