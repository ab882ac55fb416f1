// SPDX-License-Identifier: Apache-2.0
// An epilogue program as a kernel takes it by value: steps over the rows of a matrix product, in the program's order.
#pragma once

#include <cstdint>

#include "ir/program.h"
#include "tiles/cuda/device_types.h"
#include "tiles/cuda/fast_divide.h"

namespace tessera {

constexpr int kMaxDeviceSteps = 6;

struct DeviceStep {
  StepKind kind = StepKind::quantize;
  Unary fn = Unary::identity;
  DeviceTensor operand;
  FastDivide rows;         // residual: how many rows the operand has before they repeat
  int64_t row_stride = 0;  // residual
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
