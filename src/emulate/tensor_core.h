// SPDX-License-Identifier: Apache-2.0
// What a tensor core adds up, bit for bit. One instruction computes d = c + sum of its products as one fused sum:
//   1. A product's exponent is the sum of its operands' exponents; its significand, in [1, 4), is not normalised. A
//      subnormal operand has its type's least exponent. c is one more term.
//   2. All terms are aligned to the largest exponent and truncated toward zero to `fraction_bits`.
//   3. The sum of these is exact. It is normalised and truncated toward zero to `kept_bits` of fraction.
// A mainloop is a chain of such instructions along k. Confirmed on an H200 for every row that says so: all sums of our
// own kernels were equal to the last bit (docs/design/0020).
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct TensorCore {
  const char* name;
  int fraction_bits, kept_bits;
  int products;  // of one fused sum
};

// Confirmed on an H200.
inline constexpr TensorCore kWgmmaHalf{"wgmma f16, bf16", 25, 23, 16};
inline constexpr TensorCore kWgmmaE4m3{"wgmma e4m3", 13, 13, 32};
// 2:4 sparse: of so many products half are zeros, which are multiplied as such here.
inline constexpr TensorCore kWgmmaSparseE4m3{"wgmma.sp e4m3", 13, 13, 64};
inline constexpr TensorCore kMmaHalf{"mma.sync f16, bf16 on sm_90", 25, 23, 16};

// As the dense instruction does it; not confirmed.
inline constexpr TensorCore kWgmmaSparseHalf{"wgmma.sp f16, bf16", 25, 23, 32};

// The order in which a kernel adds up the products of one result.
struct SumOrder {
  const TensorCore* core = nullptr;  // null: integer sums, exact
  // After so many products the accumulator is added to an f32 number and starts again at zero; 0: never.
  int promote_every = 0;
  // Where each slice of k begins, the first at 0; slices are added up in f32, the first one first. Empty: one slice.
  std::vector<int64_t> slices = {};
};

// The numbers of one operand as the instruction sees them: codes without scales, [rows, k], each exact in f32.
struct CoreOperand {
  const float* numbers = nullptr;
  int least_exponent = 0;  // of normal numbers of the operand's type
};

// sums[m, n] = x[m, :] . w[n, :] in this order. A row with a number that is not finite gives what IEEE sums give.
void emulate_sums(const SumOrder& order, const CoreOperand& x, const CoreOperand& w, float* sums, int64_t m, int64_t n,
                  int64_t k);

// One instruction, plainly: c + sum of x[i] * w[i] over core.products of them. What emulate_sums and the kernel of
// emulate/cuda_sums.cu are tested against.
float fused_sum(const TensorCore& core, float c, const CoreOperand& x, const CoreOperand& w, int64_t count);

}  // namespace tessera
