// SPDX-License-Identifier: Apache-2.0
// matmul/cpu_int8: exact products of int8 codes in int32 sums by the matrix instructions of the processor (SMMLA, AMX,
// VPDPBUSD; else 16-bit multiplications); the sum becomes fp32 once, then scales and program follow.
#include "ops/matmul/cpu_products.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) {
  TS_REQUIRE(p.operand(0) == nullptr || p.operand(0)->shape.empty() || p.operand(0)->shape.back() <= kMostInt8Products,
             "sums at most ", kMostInt8Products, " products in int32");
  return accepts_cpu_matmul(p, int8_factors());
}

std::vector<OperandLayout> layouts(const Problem& p) { return layouts_of_cpu_matmul(p, int8_factors()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_matmul(p, int8_factors()); }

}  // namespace

const Variant& matmul_cpu_int8() {
  static const Variant kVariant{.name = "matmul/cpu_int8",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = int8_arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
