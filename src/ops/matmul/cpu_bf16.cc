// SPDX-License-Identifier: Apache-2.0
// matmul/cpu_bf16: products of numbers that bf16 holds exactly (bf16, fp8, 4 bits, int8; with block scales too where
// the significands allow it), by the matrix instructions of the processor (BFMMLA, AMX, VDPBF16PS; else fp32 FMA on the
// same numbers), summed in fp32.
#include "ops/matmul/cpu_products.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) { return accepts_cpu_matmul(p, bf16_factors()); }

std::vector<OperandLayout> layouts(const Problem& p) { return layouts_of_cpu_matmul(p, bf16_factors()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_matmul(p, bf16_factors()); }

}  // namespace

const Variant& matmul_cpu_bf16() {
  static const Variant kVariant{.name = "matmul/cpu_bf16",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = bf16_arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
