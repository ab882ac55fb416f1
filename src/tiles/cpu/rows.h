// SPDX-License-Identifier: Apache-2.0
// What CPU kernels do to a row of numbers, in the widest SIMD of this machine: decode it to f32, run steps of an
// epilogue program on it, encode it. Rows may have any length and alignment; no byte outside of them is touched, and of
// a byte that 4-bit codes share with a neighbour only their half.
#pragma once

#include <cstdint>
#include <span>

#include "steps/functor.h"
#include "types/element.h"

namespace tessera {

// The elements that steps of a program read.
constexpr bool is_float_code(Element e) {
  return e == Element::f32 || e == Element::f16 || e == Element::bf16 || e == Element::e4m3;
}

constexpr bool is_exact_in_bf16(Element e) { return e == Element::bf16 || e == Element::e4m3; }

// n codes of any element from index `first` of a dense array; in SIMD those that activations are made of.
void decode_row(Element element, const void* codes, int64_t first, int64_t n, float* out);
// The same in bf16. Contract: is_exact_in_bf16(element).
void decode_row_bf16(Element element, const void* codes, int64_t first, int64_t n, uint16_t* out);
// out[4 * i + j] = rows[j][i]
void interleave_rows(const uint16_t* const (&rows)[4], int64_t n, uint16_t* out);
// out[4 * i + j] = s[16 * j + i] rounded to bf16, i < 16. NaN stays NaN; nothing saturates.
void round_group(const float* s, uint16_t* out);
// code[i] = encode(in[i] * factor) of any element, rounded to nearest even, saturating.
void encode_row(Element element, const float* in, int64_t n, float factor, void* codes, int64_t first);
// y[i] = fn(x[i]); x and y may be the same. Errors: math.h.
void map_row(Unary fn, const float* x, float* y, int64_t n);

// A step of a program on a piece of a row: its vector operand already in f32, its matrix operand where this piece's
// numbers begin.
struct RowStep {
  StepKind kind;
  StepArgs args;
  const float* vector = nullptr;
  Element element = Element::f32;  // of the matrix
  const void* matrix = nullptr;
  int64_t first = 0;  // index of the piece's first number in the matrix
};
// Contract: each step has a functor, or is quantize, whose codes encode_row makes.
void run_steps(std::span<const RowStep> steps, float* v, int64_t n);

// v[i] *= a * b[i], or v[i] *= a where b is null.
void scale_row(float* v, int64_t n, float a, const float* b);

}  // namespace tessera
