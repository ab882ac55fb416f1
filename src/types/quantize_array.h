// SPDX-License-Identifier: Apache-2.0
// Numbers [rows, cols] to codes and scales of any QuantType, and back, in f32, one rounding per operation. max: the
// element's largest number; amax: the largest magnitude under one scale.
//   scale2 = amax / (max * largest scale)    one for the tensor; with as(element): amax / largest of that element
//   scale  = encode((amax / max) / scale2)   within the scale element's positive numbers; powers of two: power_rule.h
//   code   = encode(x / (scale * scale2))    scales as stored, that is rounded; at most max in magnitude
// A scale that would be zero is 1. Block types take x / scale = -0 as +0, all others keep the sign. NaN: the scale over
// it is NaN (scale2 passes over it), and codes under scales whose product is no positive finite number are 0.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "base/status.h"
#include "types/quant_type.h"

namespace tessera {

// Whether the functions below know the type; the sentence says what would be accepted. Plain elements are known: they
// have codes only.
Status check_quantizable(const QuantType& type);

// Arrays: codes hold packed_bytes(element, rows * cols), densely also where a row ends inside a byte; a level of scales
// holds scale_count numbers of its element, and is null where the type has no such level. Contract of all:
// check_quantizable(type) is ok; arrays do not overlap.

// The second level alone, e.g. to fix it over calibration data.
void make_scale2(const QuantType& type, const float* x, int64_t rows, int64_t cols, void* scale2);
// The first level under a given second one.
void make_scales(const QuantType& type, const float* x, int64_t rows, int64_t cols, const void* scale2, void* scale);
// Codes under given scales. A NaN in x becomes NaN where the element has one.
void encode_scaled(const QuantType& type, const float* x, int64_t rows, int64_t cols, const void* scale,
                   const void* scale2, void* codes);
// First level and codes under a given second level, in one pass where scales cover rows or less.
void quantize_under(const QuantType& type, const float* x, int64_t rows, int64_t cols, const void* scale2, void* scale,
                    void* codes);

struct QuantizedArray {
  Buffer codes, scale, scale2;
};
Result<QuantizedArray> quantize_array(const QuantType& type, const float* x, int64_t rows, int64_t cols);

// y = (decode(code) * scale) * scale2; with as(element) the first product is rounded to it.
void dequantize_array(const QuantType& type, const void* codes, const void* scale, const void* scale2, int64_t rows,
                      int64_t cols, float* y);

// What enters the multiplication of a type with as(element): that element's codes of decode(code) * scale; scale2 is
// left to the epilogue.
void encode_products(const QuantType& type, const void* codes, const void* scale, int64_t rows, int64_t cols,
                     void* products);

}  // namespace tessera
