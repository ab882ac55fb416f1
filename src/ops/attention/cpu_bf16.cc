// SPDX-License-Identifier: Apache-2.0
// attention/cpu_bf16: both products of numbers in bf16 by the matrix instructions of the processor, sums and softmax in
// fp32; probabilities are rounded to bf16 (half a unit, 2^-8) before they meet v, unless attr `p` made codes of them,
// which bf16 holds exactly.
#include "ops/attention/attention.h"
#include "ops/attention/cpu_kernel.h"
#include "tiles/cpu/rows.h"

namespace tessera {
namespace {

Verdict accepts(const Problem& p) { return accepts_cpu_attention(p, is_exact_in_bf16, "bf16 or e4m3"); }

Arithmetic arithmetic(const Problem& p) {
  return {.computed = Element::bf16,
          .instruction = "bf16 products, fp32 sums",
          .accumulator_bits = 23,
          .operand_error = AttentionProblem::of(p).p ? 0 : 0x1p-8};
}

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_attention(p, bf16_product()); }

}  // namespace

const Variant& attention_cpu_bf16() {
  static const Variant kVariant{
      .name = "attention/cpu_bf16", .arch = Arch::cpu, .accepts = accepts, .arithmetic = arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
