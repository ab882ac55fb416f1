// SPDX-License-Identifier: Apache-2.0
// Tensor maps for TMA (host code of .cu files). Outside the tensor a load gives zeros and a
// store writes nothing, so tiles need no tails. Boxes whose rows are 128, 64 or 32 bytes are swizzled as
// archs/sm90/swizzle.h says unless told not to; others are plain.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <array>

#include "base/status.h"
#include "tiles/sm90/image_windows.h"
#include "types/element.h"

namespace tessera::cuda {

// Axes from the contiguous one outwards. Contract: data is aligned to 16 bytes, strides are multiples of 16 bytes.
template <int kAxes>
struct Boxes {
  const void* data = nullptr;
  Element element = Element::f16;          // f16, bf16, or a byte-wide element
  std::array<int64_t, kAxes> sizes;        // elements
  std::array<int64_t, kAxes - 1> strides;  // elements, of axes 1 ...
  std::array<int, kAxes> box;              // elements
  bool swizzled = true;
};

// A function of the driver; null where it is older than CUDA 12.
inline void* driver_entry(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  return cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found) == cudaSuccess ? entry
                                                                                                         : nullptr;
}

inline CUtensorMapDataType tensor_map_type(Element e) {
  return e == Element::f16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
         : e == Element::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                              : CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

template <int kAxes>
Result<CUtensorMap> make_tensor_map(const Boxes<kAxes>& b) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const auto encode = reinterpret_cast<Encode>(driver_entry("cuTensorMapEncodeTiled"));
  if (encode == nullptr) return machine_error("the driver has no cuTensorMapEncodeTiled (CUDA 12 or newer is needed)");
  const int64_t bytes = info(b.element).bits / 8;
  cuuint64_t sizes[kAxes], strides[kAxes];
  cuuint32_t box[kAxes], steps[kAxes];
  for (size_t i = 0; i < kAxes; ++i) {
    sizes[i] = static_cast<cuuint64_t>(b.sizes[i]);
    box[i] = static_cast<cuuint32_t>(b.box[i]);
    steps[i] = 1;
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(b.strides[i - 1] * bytes);
  }
  const CUtensorMapDataType type = tensor_map_type(b.element);
  const int64_t row_bytes = b.box[0] * bytes;
  const CUtensorMapSwizzle swizzle = !b.swizzled        ? CU_TENSOR_MAP_SWIZZLE_NONE
                                     : row_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : row_bytes == 64  ? CU_TENSOR_MAP_SWIZZLE_64B
                                     : row_bytes == 32  ? CU_TENSOR_MAP_SWIZZLE_32B
                                                        : CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMap map;
  const CUresult result =
      encode(&map, type, kAxes, const_cast<void*>(b.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return machine_error(cat("cuTensorMapEncodeTiled failed with ", static_cast<int>(result)));
  return map;
}

// Boxes of rows x 128 bytes of a matrix.
inline Result<CUtensorMap> make_matrix_map(const void* data, Element element, int64_t rows, int64_t cols,
                                           int64_t row_stride, int box_rows) {
  return make_tensor_map<2>({data, element, {cols, rows}, {row_stride}, {128 * 8 / info(element).bits, box_rows}});
}

// Windows of images with their channels last: 128 bytes of channels of `pixels` windows at one tap
// (sm90::load_windows_box in archs/sm90/instructions.cuh). strides: elements from pixel to pixel, line to line, image
// to image.
struct WindowBoxes {
  const void* data = nullptr;
  Element element = Element::f16;
  int64_t channels, width, height, images;
  std::array<int64_t, 3> strides;
  sm90::CornerBox across, down;
  int sw, sh, pixels;
};
inline Result<CUtensorMap> make_windows_map(const WindowBoxes& b) {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                   const int*, const int*, cuuint32_t, cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const auto encode = reinterpret_cast<Encode>(driver_entry("cuTensorMapEncodeIm2col"));
  if (encode == nullptr) return machine_error("the driver has no cuTensorMapEncodeIm2col (CUDA 12 or newer is needed)");
  const int64_t bytes = info(b.element).bits / 8;
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(b.channels), static_cast<cuuint64_t>(b.width),
                               static_cast<cuuint64_t>(b.height), static_cast<cuuint64_t>(b.images)};
  const cuuint64_t strides[3] = {static_cast<cuuint64_t>(b.strides[0] * bytes),
                                 static_cast<cuuint64_t>(b.strides[1] * bytes),
                                 static_cast<cuuint64_t>(b.strides[2] * bytes)};
  // Columns before lines, as sizes and strides have them.
  const int lower[2] = {b.across.lower, b.down.lower}, upper[2] = {b.across.upper, b.down.upper};
  const cuuint32_t steps[4] = {1, static_cast<cuuint32_t>(b.sw), static_cast<cuuint32_t>(b.sh), 1};
  CUtensorMap map;
  const CUresult result = encode(&map, tensor_map_type(b.element), 4, const_cast<void*>(b.data), sizes, strides, lower,
                                 upper, static_cast<cuuint32_t>(128 / bytes), static_cast<cuuint32_t>(b.pixels), steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return machine_error(cat("cuTensorMapEncodeIm2col failed with ", static_cast<int>(result)));
  return map;
}

}  // namespace tessera::cuda
