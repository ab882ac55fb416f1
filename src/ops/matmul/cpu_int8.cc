// SPDX-License-Identifier: Apache-2.0
// matmul/cpu_int8: exact products of int8 codes in int32 sums by the matrix instructions of the processor (SMMLA, AMX;
// else 16-bit multiplications); the sum becomes fp32 once, then scales and program follow.
#include "ops/matmul/cpu_kernel.h"
#include "tiles/cpu/numbers.h"

namespace tessera {
namespace {

// int32 holds the sum of as many products of -128 ... 127.
constexpr int64_t kMostColumns = (int64_t{1} << 31) / (128 * 128) - 1;

bool is_int8(Element e) { return e == Element::i8; }

CpuFactors factors() {
  return {.product = int8_product(),
          .numbers = Element::i8,
          .holds = [](const QuantType& type) { return is_int8(type.element) && !has_block_scales(type); },
          .reads = is_int8,
          .refusal = "multiplies i8 without scales of blocks, not "};
}

Verdict accepts(const Problem& p) {
  TS_REQUIRE(p.operand(0) == nullptr || p.operand(0)->shape.empty() || p.operand(0)->shape.back() <= kMostColumns,
             "sums at most ", kMostColumns, " products in int32");
  return accepts_cpu_matmul(p, factors());
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::i8, .instruction = "int8 products", .accumulator_bits = 32};
}

std::vector<OperandLayout> layouts(const Problem& p) { return layouts_of_cpu_matmul(p, factors()); }

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return make_cpu_matmul(p, factors()); }

}  // namespace

const Variant& matmul_cpu_int8() {
  static const Variant kVariant{.name = "matmul/cpu_int8",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
