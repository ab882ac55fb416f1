// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_int8_sparse: int8 on sparse wgmma, sums exact in int32.
#include "ops/matmul/sm90_sparse_contract.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_sparse_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_int8_sparse";

Verdict accepts(const Problem& problem) {
  TS_REQUIRE(problem.in[0].type.element == Element::i8, "reads int8 with one static scale, not ",
             to_string(problem.in[0].type));
  return accepts_sparse_on_wgmma(problem);
}

#ifdef __CUDACC__
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) { return bind_sparse_codes<int8_t>(kName, problem); }
#else
constexpr Result<std::unique_ptr<Kernel>> (*bind)(const Problem&) = nullptr;
#endif

}  // namespace

const Variant& matmul_sm90_int8_sparse() {
  static const Variant kVariant = sparse_variant(kName, accepts, bind, shows({"IGMMA.SP"}));
  return kVariant;
}

}  // namespace tessera
