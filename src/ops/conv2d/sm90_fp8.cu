// SPDX-License-Identifier: Apache-2.0
// conv2d/sm90_fp8: e4m3 on wgmma with the whole program in the epilogue, the next layer's quantization included.
#include "ops/conv2d/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/conv2d/sm90_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "conv2d/sm90_fp8";

Verdict accepts(const Problem& problem) {
  TS_REQUIRE(problem.in[0].type.element == Element::e4m3, "reads e4m3 with one static scale, not ",
             to_string(problem.in[0].type));
  return accepts_conv2d_on_wgmma(problem);
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return bind_codes<__nv_fp8_e4m3>(kName, problem, kConv2dReader,
                                   [&]<class Out>() { return pick_windows_gemm<__nv_fp8_e4m3, Out>(problem.config); });
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& conv2d_sm90_fp8() {
  static const Variant kVariant = conv2d_on_wgmma(kName, accepts, bind, shows({"QGMMA"}));
  return kVariant;
}

}  // namespace tessera
