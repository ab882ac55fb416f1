// SPDX-License-Identifier: Apache-2.0
// The types that device code reads and writes as numbers, and how a kernel is told where such a tensor lies. Contracts
// ask these in every build.
#pragma once

#include <cstdint>

#include "types/quant_type.h"

namespace tessera {

// f32, f16, bf16: numbers without scales.
inline bool is_device_float(const QuantType& t) {
  return !t.scaled() && (t.element == Element::f32 || t.element == Element::f16 || t.element == Element::bf16);
}
// One static f32 scale for the whole tensor.
inline bool has_device_scale(const QuantType& t) {
  return t.scale == ScaleLevel{Granularity::kTensor, Element::f32} && t.scale2 == ScaleLevel{} && !t.dynamic;
}
// e4m3, plain or with such a scale.
inline bool is_device_e4m3(const QuantType& t) {
  return t.element == Element::e4m3 && (!t.scaled() || has_device_scale(t));
}
// int8 with such a scale: matmuls and norms write it themselves, for everybody else a copy makes it.
inline bool is_device_int8(const QuantType& t) { return t.element == Element::i8 && has_device_scale(t); }
inline bool is_device_number(const QuantType& t) { return is_device_float(t) || is_device_e4m3(t); }
// Integers and f64 that kernels move and convert one element at a time.
inline bool is_device_plain(Element e) {
  return e == Element::f64 || e == Element::i64 || e == Element::i32 || e == Element::u8;
}
inline bool is_device_type(const QuantType& t) {
  return is_device_number(t) || (!t.scaled() && is_device_plain(t.element));
}

// A tensor as kernels see it. scale is null where every number's scale is 1.
struct DeviceTensor {
  void* data = nullptr;
  const float* scale = nullptr;
  Element element = Element::f32;
};

// From what a launch is given: anything with data, scale and desc->type.
template <class View>
DeviceTensor device_tensor(const View& t) {
  return {t.data, static_cast<const float*>(t.scale), t.desc->type.element};
}

inline bool is_aligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

}  // namespace tessera
