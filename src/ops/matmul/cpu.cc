// SPDX-License-Identifier: Apache-2.0
// matmul/cpu: fp32 products of decoded codes, of any type.
#include "ops/matmul/cpu_kernel.h"
#include "tiles/cpu/numbers.h"
#include "tiles/cpu/rows.h"

namespace tessera {
namespace {

CpuFactors factors() {
  return {.product = fp32_product(),
          .numbers = Element::f32,
          .holds = [](const QuantType& type) { return significand_bits(type.element) <= 24; },
          .reads = is_float_code,
          .refusal = "multiplies codes that f32 holds, not "};
}

Verdict accepts(const Problem& p) { return accepts_cpu_matmul(p, factors()); }

// A code times its block's scale is rounded where f32 does not hold it.
Arithmetic arithmetic(const Problem& p) {
  const bool exact = fits_f32(p.in[0].type) && fits_f32(p.in[1].type);
  return {.computed = Element::f32,
          .instruction = "fp32 FMA on decoded codes",
          .accumulator_bits = 24,
          .operand_error = exact ? 0 : 0x1p-24};
}

std::vector<OperandLayout> layouts(const Problem& p) { return layouts_of_cpu_matmul(p, factors()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_matmul(p, factors()); }

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
