// SPDX-License-Identifier: Apache-2.0
// conv2d/cpu_bf16: products of numbers that bf16 holds exactly, summed in fp32 (as matmul/cpu_bf16).
#include "ops/conv2d/cpu_products.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) { return accepts_cpu_conv2d(p, bf16_factors()); }

std::vector<OperandLayout> layouts(const Problem& p) { return layouts_of_cpu_conv2d(p, bf16_factors()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_conv2d(p, bf16_factors()); }

}  // namespace

const Variant& conv2d_cpu_bf16() {
  static const Variant kVariant{.name = "conv2d/cpu_bf16",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = bf16_arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
