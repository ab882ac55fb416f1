// SPDX-License-Identifier: Apache-2.0
// y = x w^T and a program after it for the CPU variants of matmul and conv2d, for any product of panels and any types
// whose numbers it multiplies. A piece of work is a block of rows x a block of columns of y: for each block of k, the
// rows of x are packed once, then every panel of 16 weights is unpacked (or read where it lies) and multiplied with all
// of them. Codes become code * block scale while they are unpacked (tiles/cpu/numbers.h), 2:4 sparse weights whole
// rows. Sums over blocks of k collect in an f32 tile, then the scales of rows, channels and tensors, and the program
// run on its rows.
#pragma once

#include <memory>
#include <vector>

#include "op/problem.h"
#include "op/variant.h"
#include "tiles/cpu/product.h"

namespace tessera {

// What a product multiplies.
struct CpuFactors {
  const PanelProduct& product;
  Element numbers;                  // of which every other type's numbers are made
  bool (*holds)(const QuantType&);  // whether the numbers of a type are among them
  bool (*reads)(Element);           // codes that the product unpacks itself
  const char* refusal;              // "multiplies ..., not " the type
};

// Numbers of every type that f32 holds, by fp32 FMA; those that bf16 holds exactly; int8.
CpuFactors fp32_factors();
CpuFactors bf16_factors();
CpuFactors int8_factors();
// A code times its block's scale is rounded where f32 does not hold it.
Arithmetic fp32_arithmetic(const Problem& p);
Arithmetic bf16_arithmetic(const Problem& p);
Arithmetic int8_arithmetic(const Problem& p);
// int32 holds the sum of as many products of -128 ... 127.
constexpr int64_t kMostInt8Products = (int64_t{1} << 31) / (128 * 128) - 1;

// Rows of x that do not lie in memory as rows: windows of an image.
class CpuRows {
 public:
  virtual ~CpuRows() = default;
  // Codes of columns [col, col + cols) of rows [row, row + rows) of product `batch`, dense, in x's element.
  virtual void read(const TensorView& x, int64_t batch, int64_t row, int64_t rows, int64_t col, int64_t cols,
                    void* codes) const = 0;
};

// `batch` products of m rows and n rows of w over k. w's rows follow one another over all products; results do so too,
// or, where they lie `beside` one another, share their rows, n columns each.
struct CpuProducts {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t x_row_stride = 0, w_row_stride = 0;
  bool beside = false;
  bool sparse24 = false;  // w is to be stored 2:4 sparse
};

// Of x and w of a problem: their types, w's order, and the program. Rows of x are the caller's affair.
Verdict accepts_cpu_products(const Problem& p, const CpuProducts& products, const CpuFactors& factors);
// w in panels, where they can be, of the product's own order.
std::vector<OperandLayout> layouts_of_cpu_products(const Problem& p, const CpuProducts& products,
                                                   const CpuFactors& factors);
// Contract: accepted. `rows` null: rows of x lie x_row_stride apart.
std::unique_ptr<Kernel> make_cpu_products(const Problem& problem, const CpuProducts& products,
                                          const CpuFactors& factors, std::unique_ptr<CpuRows> rows = nullptr);

}  // namespace tessera
