// SPDX-License-Identifier: Apache-2.0
// conv2d/cpu_int8: exact products of int8 codes in int32 sums (as matmul/cpu_int8).
#include "ops/conv2d/cpu_products.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) {
  TS_REQUIRE(p.operand(1) == nullptr || p.operand(1)->shape.back() <= kMostInt8Products, "sums at most ",
             kMostInt8Products, " products in int32");
  return accepts_cpu_conv2d(p, int8_factors());
}

std::vector<OperandLayout> layouts(const Problem& p) { return layouts_of_cpu_conv2d(p, int8_factors()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_conv2d(p, int8_factors()); }

}  // namespace

const Variant& conv2d_cpu_int8() {
  static const Variant kVariant{.name = "conv2d/cpu_int8",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = int8_arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
