// SPDX-License-Identifier: Apache-2.0
// How the generic host variants (map, reduce, softmax, copy, concat, gather) see tensors: as runs of float, or of
// double where f64 or wide integers take part. A chunk of a run is decoded, worked on and encoded; where a tensor's
// bytes are numbers of T already, nothing is copied.
//   for_each_chunk(shape, strides, body)  ->  body(offset per operand, n)
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/parallel.h"
#include "op/problem.h"
#include "op/variant.h"
#include "tiles/strided.h"

namespace tessera {

constexpr int64_t kChunk = 512;  // numbers: four operands of float fit 8 KiB, well inside an L1

// What Reader and Writer can do: rows in any strides; plain types, or one static f32 scale for the tensor.
Verdict accepts_numbers(const Operand& o);
// The same for all operands of a problem that runs no program.
Verdict accepts_all_numbers(const Problem& p);
// True where f32 would lose digits: an operand of f64, i64 or i32.
bool needs_f64(const Problem& p);
// "fp32", or "f64" where needs_f64.
Arithmetic generic_arithmetic(const Problem& p);

// n codes of the element, `step` apart, next to one another; and back.
void pack_codes(const void* codes, Element e, int64_t first, int64_t step, int64_t n, void* out);
void spread_codes(const void* packed, Element e, int64_t n, void* codes, int64_t first, int64_t step);

template <class T>
class Reader {
 public:
  explicit Reader(const TensorView& t)
      : data_(t.data),
        element_(t.desc->type.element),
        scale_(t.scale != nullptr ? *static_cast<const float*>(t.scale) : 1.0f) {}
  // n numbers from element `first` on. `scratch` holds kChunk numbers; the result points there or into the tensor.
  const T* read(int64_t first, int64_t step, int64_t n, T* scratch) const;

 private:
  const void* data_;
  Element element_;
  float scale_;
};

// n numbers, `step` apart, next to one another in `out`, however many.
void read_run(const Reader<float>& from, int64_t first, int64_t step, int64_t n, float* out);

template <class T>
class Writer {
 public:
  explicit Writer(const TensorView& t)
      : data_(t.data),
        element_(t.desc->type.element),
        scale_(t.scale != nullptr ? *static_cast<const float*>(t.scale) : 1.0f),
        scaled_(t.scale != nullptr) {}
  // Where n numbers for element `first` on are best computed: in the tensor, or in `scratch`.
  T* place(int64_t first, int64_t step, T* scratch) const;
  // Encodes them unless they were computed in the tensor. May overwrite `numbers`.
  void write(T* numbers, int64_t n, int64_t first, int64_t step) const;

 private:
  bool direct(int64_t step) const;
  void* data_;
  Element element_;
  float scale_;
  bool scaled_;
};

// y[...] = x[...] over a shape, converting between any two types that accepts_numbers takes. Floats become integers
// towards zero. Offsets are in elements; strides may differ between both. Running allocates nothing.
class Conversion {
 public:
  Conversion(Shape shape, Shape x_strides, Shape y_strides);
  void run(const TensorView& x, const TensorView& y, int64_t y_offset = 0) const;

 private:
  Shape shape_;
  std::vector<Shape> strides_;
};

// Calls body(offsets, n) for pieces of at most kChunk numbers along the last axis, on all threads; offsets[i] is where
// operand i's piece starts. Contract: merge_axes was here (one axis at least).
template <class Body>
void for_each_chunk(const Shape& shape, const std::vector<Shape>& strides, const Body& body) {
  const int64_t length = shape.back();
  if (elements(shape) == 0) return;
  const int64_t chunks = (length + kChunk - 1) / kChunk;
  const int64_t runs = elements(shape) / length;
  const int64_t grain = std::max<int64_t>(1, 16 * kChunk / std::min(length, kChunk));
  parallel_for(runs * chunks, grain, [&](int64_t begin, int64_t end) {
    StridedRuns walk(shape, strides);
    walk.seek(begin / chunks);
    std::array<int64_t, StridedRuns::kFew> offsets;
    int64_t chunk = begin % chunks;
    for (int64_t item = begin; item < end; ++item) {
      for (size_t o = 0; o < strides.size(); ++o) offsets[o] = walk.offset(o) + chunk * kChunk * strides[o].back();
      body(offsets.data(), std::min(kChunk, length - chunk * kChunk));
      if (++chunk == chunks) {
        chunk = 0;
        walk.next();
      }
    }
  });
}

}  // namespace tessera
