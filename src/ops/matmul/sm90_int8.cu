// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_int8: int8 on wgmma, sums exact in int32, with the whole program in the epilogue (tiles/sm90_gemm.cuh).
// SASS must: IGMMA
// SASS must not: HMMA
#include "ops/matmul/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_gemm_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_int8";

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.x == kI8PerTensor, "reads int8 with one static scale, not ", to_string(p.x));
  TS_REQUIRE(p.w == kI8PerTensor || p.w == kI8PerChannel, "reads int8 weights scaled per tensor or channel, not ", to_string(p.w));
  TS_REQUIRE(p.y == QuantType(Element::f16) || p.y == QuantType(Element::bf16) || p.y == kI8PerTensor, "writes f16, bf16 or int8 with one static scale, not ",
             to_string(p.y));
  TS_REQUIRE(p.k <= 1 << 16, "sums at most 65536 products in int32, here ", p.k);
  return accepts_for_wgmma(problem, p, p.y.element == Element::bf16 ? Element::bf16 : Element::f16);
}

// Fewer rows leave most of the chip idle: nobody splits K.
Verdict worthwhile(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m > 512, "slow below 512 rows, here ", p.m);
  return {};
}

Arithmetic arithmetic(const Problem& problem) {
  return {.computed = "int8",
          .instruction = "wgmma int8 (IGMMA)",
          .accumulator_bits = 32,
          .activation_error = activation_error(MatmulProblem::of(problem)),
          .sass_must = "IGMMA",
          .sass_not = "HMMA"};
}

std::vector<std::string> configs(const Problem& problem) { return gemm_configs(MatmulProblem::of(problem)); }

#ifdef __CUDACC__

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  switch (problem.out[0].type.element) {
    case Element::i8: return bind_gemm(kName, problem, pick_gemm<int8_t, int8_t>(problem.config));
    case Element::bf16: return bind_gemm(kName, problem, pick_gemm<int8_t, __nv_bfloat16>(problem.config));
    default: return bind_gemm(kName, problem, pick_gemm<int8_t, __half>(problem.config));
  }
}

#endif

}  // namespace

const Variant& matmul_sm90_int8() {
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
