// SPDX-License-Identifier: Apache-2.0
// matmul/cpu_bf16: products of numbers that bf16 holds exactly (bf16, fp8, 4 bits, int8; with block scales too where
// the significands allow it), by the matrix instructions of the processor (BFMMLA, AMX, VDPBF16PS; else fp32 FMA on the
// same numbers), summed in fp32.
#include "ops/matmul/cpu_kernel.h"
#include "tiles/cpu/numbers.h"
#include "tiles/cpu/rows.h"

namespace tessera {
namespace {

CpuFactors factors() {
  return {.product = bf16_product(),
          .numbers = Element::bf16,
          .holds = fits_bf16,
          .reads = is_exact_in_bf16,
          .refusal = "multiplies numbers that bf16 holds exactly, not "};
}

Verdict accepts(const Problem& p) { return accepts_cpu_matmul(p, factors()); }

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::bf16, .instruction = "bf16 products, fp32 sums", .accumulator_bits = 23};
}

std::vector<OperandLayout> layouts(const Problem& p) { return layouts_of_cpu_matmul(p, factors()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_matmul(p, factors()); }

}  // namespace

const Variant& matmul_cpu_bf16() {
  static const Variant kVariant{.name = "matmul/cpu_bf16",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
