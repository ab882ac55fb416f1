// SPDX-License-Identifier: Apache-2.0
// attention/cpu: fp32 over decoded codes.
#include "ops/attention/cpu_kernel.h"
#include "tiles/cpu/rows.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) { return accepts_cpu_attention(p, is_float_code, "f32, f16, bf16 or e4m3"); }

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "fp32 FMA on decoded codes", .accumulator_bits = 24};
}

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_attention(p, fp32_product()); }

}  // namespace

const Variant& attention_cpu() {
  static const Variant kVariant{
      .name = "attention/cpu", .arch = Arch::cpu, .accepts = accepts, .arithmetic = arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
