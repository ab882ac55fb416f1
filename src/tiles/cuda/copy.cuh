// SPDX-License-Identifier: Apache-2.0
// Strided tensors into strided tensors, with conversion: y[i] = x[i] over common axes. Eight numbers per thread where
// both sides have them in a row, else one; equal types without scales are moved as bits. Several pieces of one result
// go in one launch where all of them have eight in a row.
#pragma once

#include "base/buffer.h"
#include "tiles/cuda/axes.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"

namespace tessera::cuda {

struct CopyArgs {
  DeviceTensor x, y;
  // Null, or where the address is found when the kernel runs (a caller's buffer), and the bytes to go from there.
  void* const* x_slot = nullptr;
  void* const* y_slot = nullptr;
  int64_t x_slot_offset = 0, y_slot_offset = 0;
  DeviceAxes<2> axes;     // operand 0: x, 1: y
  uint32_t count = 0;     // of units
  bool truncate = false;  // floats become integers towards zero
};

__device__ __forceinline__ const void* x_of(const CopyArgs& p) {
  return p.x_slot == nullptr ? p.x.data : static_cast<const uint8_t*>(*p.x_slot) + p.x_slot_offset;
}
__device__ __forceinline__ void* y_of(const CopyArgs& p) {
  return p.y_slot == nullptr ? p.y.data : static_cast<uint8_t*>(*p.y_slot) + p.y_slot_offset;
}

// What copies read and write beyond the elements of other kernels: int8 under a scale.
__device__ __forceinline__ void load_eight(Element e, const void* data, int64_t index, float (&v)[8]) {
  if (e != Element::i8) return load8(e, data, index, v);
  const uint2 codes = *reinterpret_cast<const uint2*>(static_cast<const int8_t*>(data) + index);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = static_cast<float>(static_cast<int8_t>(codes.x >> (8 * i)));
    v[4 + i] = static_cast<float>(static_cast<int8_t>(codes.y >> (8 * i)));
  }
}
__device__ __forceinline__ void store_eight(Element e, void* data, int64_t index, const float (&v)[8]) {
  if (e != Element::i8) return store8(e, data, index, v);
  *reinterpret_cast<uint2*>(static_cast<int8_t*>(data) + index) = {encode_i8_four(v), encode_i8_four(v + 4)};
}
__device__ __forceinline__ float load_i8(const void* data, int64_t index) {
  return static_cast<float>(static_cast<const int8_t*>(data)[index]);
}
__device__ __forceinline__ void store_i8(void* data, int64_t index, float v) {
  static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(encode_i8_pair(v, 0.0f));
}

// Unit i: eight numbers.
__device__ __forceinline__ void copy_unit(const CopyArgs& p, uint32_t i) {
  const void* x = x_of(p);
  void* y = y_of(p);
  int64_t at[2];
  offsets_at(p.axes, i, at);
  const float factor = scale_of(p.x) * inverse_scale_of(p.y);
  float v[8];
  // A caller's buffer may begin anywhere; ours are aligned.
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    load_eight(p.x.element, x, at[0], v);
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      v[e] = p.x.element == Element::i8 ? load_i8(x, at[0] + e) : load_one(p.x.element, x, at[0] + e);
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) v[e] *= factor;
  if (reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    store_eight(p.y.element, y, at[1], v);
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (p.y.element == Element::i8) {
        store_i8(y, at[1] + e, v[e]);
      } else {
        store_one(p.y.element, y, at[1] + e, v[e]);
      }
    }
  }
}

static __global__ void __launch_bounds__(256) copy_eight(const __grid_constant__ CopyArgs p) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.count) copy_unit(p, i);
}

constexpr int kMostPieces = 4;
struct PiecesArgs {
  CopyArgs piece[kMostPieces];
  uint32_t first_block[kMostPieces];  // pieces that are not there begin behind the grid
};

static __global__ void __launch_bounds__(256) copy_pieces(const __grid_constant__ PiecesArgs p) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
#pragma unroll
  for (int k = kMostPieces - 1; k >= 0; --k) {
    if (blockIdx.x < p.first_block[k]) continue;
    const uint32_t i = (blockIdx.x - p.first_block[k]) * blockDim.x + threadIdx.x;
    if (i < p.piece[k].count) copy_unit(p.piece[k], i);
    return;
  }
}

static __global__ void __launch_bounds__(256) copy_one(const __grid_constant__ CopyArgs p) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  int64_t at[2];
  offsets_at(p.axes, i, at);
  double v = p.x.element == Element::i8 ? load_i8(x_of(p), at[0]) : load_any(p.x.element, x_of(p), at[0]);
  v *= scale_of(p.x);
  if (p.truncate) v = trunc(v);
  v *= inverse_scale_of(p.y);
  if (p.y.element == Element::i8) {
    store_i8(y_of(p), at[1], static_cast<float>(v));
  } else {
    store_any(p.y.element, y_of(p), at[1], v);
  }
}

template <class Bits>
__global__ void __launch_bounds__(256) copy_bits(const __grid_constant__ CopyArgs p) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  int64_t at[2];
  offsets_at(p.axes, i, at);
  static_cast<Bits*>(y_of(p))[at[1]] = static_cast<const Bits*>(x_of(p))[at[0]];
}

// Whether units of eight are in a row on both sides, but for where the operands begin.
inline bool copies_eight(const CopyArgs& p, const Shape& shape, const Shape& x_strides, const Shape& y_strides) {
  const auto numbers = [](Element e) {
    return e == Element::f32 || e == Element::f16 || e == Element::bf16 || e == Element::e4m3 || e == Element::i8;
  };
  bool vector = numbers(p.x.element) && numbers(p.y.element) && shape.back() % 8 == 0 && x_strides.back() == 1 &&
                y_strides.back() == 1;
  for (size_t a = 0; a + 1 < shape.size(); ++a) vector = vector && x_strides[a] % 8 == 0 && y_strides[a] % 8 == 0;
  return vector;
}

inline void set_axes(CopyArgs& p, const Shape& shape, const Shape& x_strides, const Shape& y_strides, int64_t unit) {
  p.axes.set(shape, unit);
  p.axes.set_strides(0, x_strides, unit);
  p.axes.set_strides(1, y_strides, unit);
  p.count = static_cast<uint32_t>(elements(shape) / unit);
}

// Contract: shape and strides are merged to at most kMaxAxes axes, fewer than kMaxDeviceElements elements;
// is_device_type or is_device_int8 of both types. Fills in axes, count and truncate; data, scales, elements and slots
// are the caller's.
inline Status launch_copy(const char* name, CopyArgs p, const Shape& shape, const Shape& x_strides,
                          const Shape& y_strides, bool same_type, void* stream) {
  const bool vector = copies_eight(p, shape, x_strides, y_strides);
  const int64_t unit = vector ? 8 : 1, count = elements(shape) / unit;
  if (count == 0) return {};
  set_axes(p, shape, x_strides, y_strides, unit);
  const auto whole = [](const DeviceTensor& t) {
    return info(t.element).kind == ElementKind::kInteger && t.scale == nullptr;
  };
  p.truncate = whole(p.y) && !whole(p.x);
  const auto launch = [&](auto kernel) {
    return launch_overlapping(name, kernel, divide_up(count, 256), 256, 0, stream, 1, p);
  };
  if (vector) return launch(copy_eight);
  if (!same_type) return launch(copy_one);
  switch (info(p.x.element).bits) {
    case 8:
      return launch(copy_bits<uint8_t>);
    case 16:
      return launch(copy_bits<uint16_t>);
    case 32:
      return launch(copy_bits<uint32_t>);
    default:
      return launch(copy_bits<uint64_t>);
  }
}

}  // namespace tessera::cuda
