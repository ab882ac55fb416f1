// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_fp8_token: e4m3 whose rows have scales of their own, made while running (FP8-dynamic checkpoints), on the
// normal mainloop. Sums are multiplied by their row's scale before anything else; results are 16 bits wide, since
// nobody knows a row's scale before the row is whole.
#include "ops/matmul/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_gemm_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_fp8_token";

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.x.element == Element::e4m3, "reads e4m3 with scales per token, not ", to_string(p.x));
  return accepts_on_wgmma(problem, p, {.gates = true, .tokens = true, .repeats = true});
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  const bool half = problem.out[0].type.element == Element::f16;
  return bind_gemm(kName, problem, kMatmulReader,
                   half ? pick_gemm<__nv_fp8_e4m3, __half, true>(problem.config)
                        : pick_gemm<__nv_fp8_e4m3, __nv_bfloat16, true>(problem.config));
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& matmul_sm90_fp8_token() {
  static const Variant kVariant = [] {
    Variant v = gemm_variant(kName, accepts, bind, shows({"QGMMA"}));
    v.worthwhile = nullptr;  // no other kernel reads such codes
    return v;
  }();
  return kVariant;
}

}  // namespace tessera
