// SPDX-License-Identifier: Apache-2.0
// conv2d/cpu: fp32 products of decoded codes, of any type.
#include "ops/conv2d/cpu_products.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) { return accepts_cpu_conv2d(p, fp32_factors()); }

std::vector<OperandLayout> layouts(const Problem& p) { return layouts_of_cpu_conv2d(p, fp32_factors()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_conv2d(p, fp32_factors()); }

}  // namespace

const Variant& conv2d_cpu() {
  static const Variant kVariant{.name = "conv2d/cpu",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = fp32_arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
