// SPDX-License-Identifier: Apache-2.0
// WeightGrid: the numbers that a weight [rows, cols] of a scaled type can hold once its scales are fixed, and rounding
// to them one column at a time. Codes and numbers are those of types/quantize_array.h:
//   code = encode(x / (scale * scale2)),   number = (decode(code) * scale, rounded to the product's element) * scale2
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "types/quantize_array.h"

namespace tessera {

class WeightGrid {
 public:
  // Arrays as types/quantize_array.h makes them. Contract: check_quantizable(type) is ok, and the type has scales.
  WeightGrid(const QuantType& type, int64_t rows, int64_t cols, Buffer scale, Buffer scale2);

  const QuantType& type() const { return type_; }
  // The numbers of column `col` nearest to x[0 ... n), in rows row ... row + n - 1: what each code decodes to, and the
  // number that enters products.
  void round(int64_t row, int64_t n, int64_t col, const float* x, float* decoded, float* number) const;
  // The nearest numbers to a whole weight, codes decoded.
  void round_all(const float* x, float* decoded, float* number) const;
  // The arrays of a weight of such decoded codes.
  QuantizedArray encode(const float* decoded) const;

 private:
  QuantType type_;
  int64_t rows_, cols_;
  Buffer scale_bytes_, scale2_bytes_;
  std::vector<float> scale_;
  float scale2_ = 1;
};

}  // namespace tessera
