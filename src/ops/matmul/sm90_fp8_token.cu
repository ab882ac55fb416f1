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
template <int kCols, bool kSplit>
using TokenGemm =
    sm90::GemmShape<kCols, /*kPromoted=*/false, /*kResident=*/false, kSplit, /*kWindows=*/false, /*kTokens=*/true>;

template <class Out>
PickedGemm pick(const std::string& config) {
  const bool narrow = config.rfind(gemm_name(128, 1), 0) == 0;
  if (const int split = split_of(config); split > 1) {
    return narrow ? pick_gemm<TokenGemm<128, true>, __nv_fp8_e4m3, Out>(split)
                  : pick_gemm<TokenGemm<192, true>, __nv_fp8_e4m3, Out>(split);
  }
  return narrow ? pick_gemm<TokenGemm<128, false>, __nv_fp8_e4m3, Out>()
                : pick_gemm<TokenGemm<192, false>, __nv_fp8_e4m3, Out>();
}

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  const bool half = problem.out[0].type.element == Element::f16;
  return bind_gemm(kName, problem, kMatmulReader,
                   half ? pick<__half>(problem.config) : pick<__nv_bfloat16>(problem.config));
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
