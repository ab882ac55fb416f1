// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_int8: int8 on wgmma, sums exact in int32, with the whole program in the epilogue (tiles/sm90/gemm.cuh).
#include "ops/matmul/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_gemm_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_int8";

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.x.element == Element::i8, "reads int8 with one static scale, not ", to_string(p.x));
  return accepts_on_wgmma(problem, p, {.gates = true, .repeats = true});
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return bind_codes<int8_t>(kName, problem, kMatmulReader,
                            [&]<class Out>() { return pick_gemm<int8_t, Out>(problem.config); });
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& matmul_sm90_int8() {
  static const Variant kVariant = gemm_variant(kName, accepts, bind, shows({"IGMMA"}));
  return kVariant;
}

}  // namespace tessera
