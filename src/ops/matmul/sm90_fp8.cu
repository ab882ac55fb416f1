// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_fp8: e4m3 on wgmma with the whole program in the epilogue, the next layer's quantization included (tiles/sm90_gemm.cuh).
// SASS must: QGMMA
// SASS must not: HMMA
#include "ops/matmul/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_gemm_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_fp8";

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.x == kE4m3PerTensor, "reads e4m3 with one static scale, not ", to_string(p.x));
  TS_REQUIRE(p.w == kE4m3PerTensor || p.w == kE4m3PerChannel, "reads e4m3 weights scaled per tensor or channel, not ", to_string(p.w));
  TS_REQUIRE(p.y == QuantType(Element::f16) || p.y == QuantType(Element::bf16) || p.y == kE4m3PerTensor, "writes f16, bf16 or e4m3 with one static scale, not ",
             to_string(p.y));
  return accepts_for_wgmma(problem, p, p.y.element == Element::bf16 ? Element::bf16 : Element::f16);
}

// Fewer rows leave most of the chip idle: nobody splits K.
Verdict worthwhile(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m > 512, "slow below 512 rows, here ", p.m);
  return {};
}

Arithmetic arithmetic(const Problem& problem) {
  return {.computed = "e4m3",
          .instruction = "wgmma e4m3 (QGMMA), fast accumulation",
          .accumulator_bits = sm90::kFp8AccumulatorBits,
          .activation_error = activation_error(MatmulProblem::of(problem)),
          .sass_must = "QGMMA",
          .sass_not = "HMMA"};
}

std::vector<std::string> configs(const Problem& problem) { return gemm_configs(MatmulProblem::of(problem)); }

#ifdef __CUDACC__

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  switch (problem.out[0].type.element) {
    case Element::e4m3: return bind_gemm(kName, problem, pick_gemm<__nv_fp8_e4m3, __nv_fp8_e4m3>(problem.config));
    case Element::bf16: return bind_gemm(kName, problem, pick_gemm<__nv_fp8_e4m3, __nv_bfloat16>(problem.config));
    default: return bind_gemm(kName, problem, pick_gemm<__nv_fp8_e4m3, __half>(problem.config));
  }
}

#endif

}  // namespace

const Variant& matmul_sm90_fp8() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .worthwhile = worthwhile,
                                .configs = configs,
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
