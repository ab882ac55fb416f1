// SPDX-License-Identifier: Apache-2.0
// The numbers that enter products, from codes of any QuantType, in f32 or in bf16:
//   number = decode(code) * block scale, rounded once more where the type says as(element)
// Scales of rows and of the tensor are no part of it: they multiply the sum. Which of both a number fits exactly
// follows from the significands of element and scale, so that no list of types is needed.
#pragma once

#include <cstdint>

#include "types/layout.h"
#include "types/quant_type.h"

namespace tessera {

inline bool has_block_scales(const QuantType& type) { return type.scale.granularity == Granularity::kBlock; }

// Bits from the first to the last that is set: e2m1 2, e4m3 4, f16 11, i8 7 (-128 is a power of two), e8m0 1.
int significand_bits(Element element);
// Of the numbers that enter products.
int significand_bits(const QuantType& type);
// Whether read_row and read_panel know how to round products: to floats narrower than f32.
inline bool rounds_products(const QuantType& type) {
  return !type.product || (info(*type.product).kind == ElementKind::kFloat && info(*type.product).mantissa_bits < 23);
}
inline bool fits_bf16(const QuantType& type) { return significand_bits(type) <= 8; }
inline bool fits_f32(const QuantType& type) { return significand_bits(type) <= 24; }

class NumberReader {
 public:
  // `to`: Element::f32, or Element::bf16 where fits_bf16(type).
  NumberReader(const QuantType& type, Element to);

  // A matrix of `cols` columns whose first level of scales, where it covers blocks, is `scale`.
  struct Matrix {
    const void* codes;
    const void* scale;
    int64_t cols;
  };
  // Columns [col, col + n) of a row; their codes begin at index `first`.
  void read_row(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, void* out) const;
  // Columns [col, col + n) of the panel of 16 rows that begins at `row`, from codes stored in panels (panels16 for f32,
  // panels16x4 for bf16) and scales in kPanelScales: the same panel of numbers, whole groups. `first`: index of the
  // first code. Contract: blocks of scales hold whole groups, and so do col and n but for the last columns.
  static constexpr Layout kPanelScales = Layout::kPanels16;
  void read_panel(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, void* out) const;

 private:
  template <class T>
  void decode_codes(const void* codes, int64_t first, int64_t n, T* out) const;
  template <class T>
  void read_row_as(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, T* out) const;
  template <class T>
  void read_panel_as(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, T* out) const;

  const QuantType type_;
  const Element to_;
  const ElementInfo* const round_;        // what products are rounded to, or null
  uint8_t low_[16] = {}, high_[16] = {};  // elements of 4 bits: all their numbers in bf16, byte by byte
};

}  // namespace tessera
