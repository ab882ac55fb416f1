// SPDX-License-Identifier: Apache-2.0
// conv2d/sm90_int8: int8 on wgmma, sums exact in int32, with the whole program in the epilogue.
#include "ops/conv2d/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/conv2d/sm90_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "conv2d/sm90_int8";

Verdict accepts(const Problem& problem) {
  TS_REQUIRE(problem.in[0].type.element == Element::i8, "reads int8 with one static scale, not ",
             to_string(problem.in[0].type));
  return accepts_conv2d_on_wgmma(problem);
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return bind_codes<int8_t>(kName, problem, kConv2dReader,
                            [&]<class Out>() { return pick_windows_gemm<int8_t, Out>(problem.config); });
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& conv2d_sm90_int8() {
  static const Variant kVariant = conv2d_on_wgmma(kName, accepts, bind, shows({"IGMMA"}));
  return kVariant;
}

}  // namespace tessera
