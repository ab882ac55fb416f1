// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_fp8_promoted: sm90_fp8 with sums that are added to f32 ones every 128 products, where that was asked for.
#include "ops/matmul/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_gemm_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_fp8_promoted";
constexpr int kPromoteEvery = 128;  // a block of K

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.x.element == Element::e4m3, "reads e4m3 with one static scale, not ", to_string(p.x));
  TS_REQUIRE(is_promoted(problem), "promotes its sums, which was not asked for: slower than matmul/sm90_fp8");
  return accepts_on_wgmma(problem, p, {.promotes = true, .repeats = true});
}

Arithmetic arithmetic(const Problem& problem) {
  Arithmetic a = gemm_arithmetic(problem);
  a.instruction = "wgmma e4m3 (QGMMA)";
  a.promote_every = kPromoteEvery;
  return a;
}

Emulation emulate(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  return emulate_wgmma(problem, in, out, {&kWgmmaE4m3, kPromoteEvery}, Mainloop::kNormal);
}

#ifdef __CUDACC__
struct PickPromoted {
  template <class Out>
  auto operator()() const {
    return pick_gemm<sm90::GemmShape<128, /*kPromoted=*/true>, __nv_fp8_e4m3, Out>();
  }
};
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return bind_codes<__nv_fp8_e4m3>(kName, problem, kMatmulReader, PickPromoted());
}
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& matmul_sm90_fp8_promoted() {
  static const Variant kVariant = {.name = kName,
                                   .arch = Arch::sm90,
                                   .accepts = accepts,
                                   .arithmetic = arithmetic,
                                   .layouts = layouts_for_wgmma,
                                   .emulate = emulate,
                                   .sass = shows({"QGMMA"}),
                                   .bind = bind};
  return kVariant;
}

}  // namespace tessera
