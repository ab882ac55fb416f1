// SPDX-License-Identifier: Apache-2.0
// Sums of a tensor core for many columns side by side, in SIMD: a lane per column of the result. Products are exact in
// f32, and so are their shifts, which are products with a power of two; converting to an integer truncates toward zero.
#pragma once

#include <cstdint>
#include <vector>

#include "emulate/tensor_core.h"

namespace tessera {

constexpr int kCoreLanes = 16;

// kCoreLanes rows of w with k running slowest, and the row of x that they are multiplied with.
// Contract: fraction_bits is at most 25; above 16 an instruction has at most 16 products, or 32 of which at most two of
// each four are not zero (sums are 32-bit integers).
class CorePanel {
 public:
  void pack(const float* w, int least_exponent, int64_t rows, int64_t k);
  void set_row(const float* x, int least_exponent);
  // Adds the products over [first, last) of k to sums[lane], instruction by instruction. False where numbers are so
  // large or so small that f32 does not hold their products: the sums are not right then.
  [[nodiscard]] bool sum(const TensorCore& core, int64_t first, int64_t last, float* sums) const;

 private:
  int64_t k_ = 0;
  std::vector<float> w_;  // [k][lane]
  std::vector<int16_t> w_exponent_;
  const float* x_ = nullptr;
  std::vector<int16_t> x_exponent_;
  int largest_w_ = 0, largest_x_ = 0;  // exponents
};

}  // namespace tessera
