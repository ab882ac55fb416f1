// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_f16: f16 and bf16 on wgmma with the whole program in the epilogue (tiles/sm90/gemm.cuh).
#include "ops/matmul/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_gemm_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_f16";

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(is_half(p.x.element), "multiplies f16 or bf16, not ", to_string(p.x));
  return accepts_on_wgmma(problem, p, {.gates = true, .repeats = true});
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  const bool f16 = problem.in[0].type.element == Element::f16;
  return bind_gemm(
      kName, problem, kMatmulReader,
      f16 ? pick_gemm<__half, __half>(problem.config) : pick_gemm<__nv_bfloat16, __nv_bfloat16>(problem.config));
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& matmul_sm90_f16() {
  static const Variant kVariant = gemm_variant(kName, accepts, bind, shows({"HGMMA"}));
  return kVariant;
}

}  // namespace tessera
