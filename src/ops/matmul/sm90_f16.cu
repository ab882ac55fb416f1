// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_f16: f16 and bf16 on wgmma with the whole program in the epilogue (tiles/sm90_gemm.cuh).
// SASS must: HGMMA
// SASS must not: HMMA
#include "ops/matmul/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_gemm_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_f16";

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(is_half(p.x.element) && p.x == p.w && !p.x.scaled() && p.y == p.x, "multiplies f16 or bf16 and writes the type it reads, not ", to_string(p.x), " with ",
             to_string(p.w), " to ", to_string(p.y));
  return accepts_for_wgmma(problem, p, p.x.element);
}

// Fewer rows leave most of the chip idle: nobody splits K.
Verdict worthwhile(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m > 512, "slow below 512 rows, here ", p.m);
  return {};
}

Arithmetic arithmetic(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  const char* computed = p.x.element == Element::f16 ? "fp16" : "bf16";
  return {.computed = computed,
          .instruction = cat("wgmma ", computed, " (HGMMA)"),
          .accumulator_bits = 22,
          .activation_error = activation_error(p),
          .sass_must = "HGMMA",
          .sass_not = "HMMA"};
}

std::vector<std::string> configs(const Problem& problem) { return gemm_configs(MatmulProblem::of(problem)); }

#ifdef __CUDACC__

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  const bool f16 = problem.in[0].type.element == Element::f16;
  return bind_gemm(kName, problem, f16 ? pick_gemm<__half, __half>(problem.config) : pick_gemm<__nv_bfloat16, __nv_bfloat16>(problem.config));
}

#endif

}  // namespace

const Variant& matmul_sm90_f16() {
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
