// SPDX-License-Identifier: Apache-2.0
// Element: how one number becomes bits. Each element is a struct in a header with encode(float) and decode(code);
// types.inc lists them. Code that needs to know something about an element asks its ElementInfo; no code switches on
// the enum.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class Element : uint8_t {
#define TS_ELEMENT(name, Struct) name,
#include "types/types.inc"
#undef TS_ELEMENT
};

enum class ElementKind : uint8_t { kFloat, kInteger };

struct ElementInfo {
  const char* name;
  ElementKind kind;
  int bits;           // storage; below 8 two codes share a byte, even index in the low nibble
  int mantissa_bits;  // stored fraction bits; integers: 0
  int min_exponent;  // of the smallest normal: 2^min_exponent; subnormals step by 2^(min_exponent - mantissa_bits), the
                     // smallest positive number
  double max;        // largest finite magnitude
  // Bulk conversion of n elements from index `first` of a densely packed array; the codes beside them stay as they are.
  // Encoding rounds to nearest even and saturates; NaN stays NaN where the element has one. Two threads may not encode
  // into the same byte.
  void (*decode)(const void* codes, int64_t first, int64_t n, float* out);
  void (*decode_f64)(const void* codes, int64_t first, int64_t n, double* out);
  void (*encode)(const float* in, int64_t n, void* codes, int64_t first);
  void (*encode_f64)(const double* in, int64_t n, void* codes, int64_t first);
  // Overflow becomes Inf or NaN where the element has one, as in ml_dtypes and ONNX's saturate=0; else the same as
  // encode.
  void (*encode_unsaturated)(const float* in, int64_t n, void* codes, int64_t first);
};

const ElementInfo& info(Element e);
std::optional<Element> find_element(std::string_view name);

// The smallest positive number.
double smallest(const ElementInfo& e);
// As many significand bits and as wide a range: every number of `narrow` is one of `wide`.
bool holds(const ElementInfo& wide, const ElementInfo& narrow);

// Bytes that n densely packed elements take.
int64_t packed_bytes(Element e, int64_t n);

// Distance between the two codes that enclose x (at and beyond max: the last distance); the rounding error is at most
// half of it.
double step_at(Element e, double x);

}  // namespace tessera
