// SPDX-License-Identifier: Apache-2.0
// Axes of a dense result with the strides of kOperands operands over them, as kernels take them by value. Merge axes
// first (tiles/strided.h).
#pragma once

#include "ir/shape.h"
#include "tiles/cuda/fast_divide.h"

namespace tessera {

constexpr int kMaxAxes = 6;
constexpr int64_t kMaxDeviceElements = (int64_t{1} << 31) - 1024;  // indices, the last block included, have 31 bits

template <int kOperands>
struct DeviceAxes {
  int rank = 0;
  FastDivide size[kMaxAxes];
  int64_t stride[kOperands][kMaxAxes] = {};

  // Contract: 1 to kMaxAxes axes of at least 1 element. `unit`: elements of the last axis that are taken at once; it
  // divides that axis, and an operand steps over `unit` elements at a time there.
  void set(const Shape& shape, int64_t unit) {
    rank = static_cast<int>(shape.size());
    for (int a = 0; a < rank; ++a)
      size[a] = FastDivide(static_cast<uint32_t>(shape[static_cast<size_t>(a)] / (a + 1 == rank ? unit : 1)));
  }
  void set_strides(int operand, const Shape& strides, int64_t unit) {
    for (int a = 0; a < rank; ++a) stride[operand][a] = strides[static_cast<size_t>(a)] * (a + 1 == rank ? unit : 1);
  }
};

}  // namespace tessera
