// SPDX-License-Identifier: Apache-2.0
// conv2d/sm90_f16: f16 and bf16 on wgmma with the whole program in the epilogue.
#include "ops/conv2d/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/conv2d/sm90_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "conv2d/sm90_f16";

Verdict accepts(const Problem& problem) {
  TS_REQUIRE(is_half(problem.in[0].type.element), "multiplies f16 or bf16, not ", to_string(problem.in[0].type));
  return accepts_conv2d_on_wgmma(problem);
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  const bool f16 = problem.in[0].type.element == Element::f16;
  return bind_gemm(kName, problem, kConv2dReader,
                   f16 ? pick_windows_gemm<__half, __half>(problem.config)
                       : pick_windows_gemm<__nv_bfloat16, __nv_bfloat16>(problem.config));
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& conv2d_sm90_f16() {
  static const Variant kVariant = conv2d_on_wgmma(kName, accepts, bind, shows({"HGMMA"}));
  return kVariant;
}

}  // namespace tessera
