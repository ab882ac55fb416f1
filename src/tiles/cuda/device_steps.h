// SPDX-License-Identifier: Apache-2.0
// An epilogue program as a kernel takes it by value: steps over the rows of a matrix product, in the program's order.
#pragma once

#include <cstdint>

#include "steps/functor.h"
#include "tiles/cuda/device_types.h"
#include "tiles/cuda/fast_divide.h"

namespace tessera {

constexpr int kMaxDeviceSteps = 6;
// In any order: whatever works on numbers one by one, as a thread has no others; and codes of the result.
inline constexpr StepSet kDeviceSteps = {StepKind::bias, StepKind::act, StepKind::scale, StepKind::residual,
                                         StepKind::quantize};

struct DeviceStep {
  StepKind kind = StepKind::quantize;
  StepArgs args;
  DeviceTensor operand;
  FastDivide rows;         // matrices: how many rows the operand has before they repeat
  int64_t row_stride = 0;  // matrices
};

// y[r,c] = steps(from[r,c] * column_scale[c]); from and y are dense and may be the same memory.
struct DeviceSteps {
  int64_t rows = 0, cols = 0;
  DeviceTensor from, y;
  const float* column_scale = nullptr;  // null: 1
  int count = 0;
  DeviceStep step[kMaxDeviceSteps];
};

}  // namespace tessera
