// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_fp8: e4m3 on wgmma with the whole program in the epilogue, the next layer's quantization included
// (tiles/sm90/gemm.cuh).
#include "ops/matmul/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_gemm_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_fp8";

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.x.element == Element::e4m3, "reads e4m3 with one static scale, not ", to_string(p.x));
  return accepts_on_wgmma(problem, p, {.gates = true, .repeats = true});
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return bind_codes<__nv_fp8_e4m3>(kName, problem, kMatmulReader,
                                   [&]<class Out>() { return pick_gemm<__nv_fp8_e4m3, Out>(problem.config); });
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& matmul_sm90_fp8() {
  static const Variant kVariant = gemm_variant(kName, accepts, bind, shows({"QGMMA"}));
  return kVariant;
}

}  // namespace tessera
