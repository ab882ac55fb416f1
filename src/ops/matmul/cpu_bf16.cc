// SPDX-License-Identifier: Apache-2.0
// matmul/cpu_bf16: products of numbers that bf16 holds exactly, by the matrix instructions of the processor (BFMMLA, AMX, VDPBF16PS; else fp32 FMA on
// the same numbers), summed in fp32.
#include "ops/matmul/cpu_kernel.h"
#include "tiles/cpu_rows.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) { return accepts_cpu_matmul(p, bf16_product(), is_exact_in_bf16, "bf16 or e4m3"); }

Arithmetic arithmetic(const Problem&) {
  return {.computed = "bf16", .instruction = "bf16 products, fp32 sums", .accumulator_bits = 23};
}

std::vector<Layout> layouts(const Problem& p) { return layouts_of_cpu_matmul(p, bf16_product()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_matmul(p, bf16_product()); }

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
