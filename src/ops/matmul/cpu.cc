// SPDX-License-Identifier: Apache-2.0
// matmul/cpu: fp32 products of decoded codes.
#include "ops/matmul/cpu_kernel.h"
#include "tiles/cpu_rows.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) { return accepts_cpu_matmul(p, fp32_product(), is_float_code, "f32, f16, bf16 or e4m3"); }

Arithmetic arithmetic(const Problem&) {
  return {.computed = "fp32", .instruction = "fp32 FMA on decoded codes", .accumulator_bits = 24};
}

std::vector<Layout> layouts(const Problem& p) { return layouts_of_cpu_matmul(p, fp32_product()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_matmul(p, fp32_product()); }

}  // namespace

const Variant& matmul_cpu() {
  static const Variant kVariant{.name = "matmul/cpu",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
