// SPDX-License-Identifier: Apache-2.0
// Windows that convolutions and pools slide over images, from a node's attributes: kernel, stride, dilation and pads
// along each axis after the first two.
#pragma once

#include "import/onnx/convert.h"

namespace tessera {

struct WindowAxis {
  int64_t size = 0;  // of x
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t before = 0, after = 0;  // pads that the file asks for
  int64_t count = 0;              // windows
  int64_t extent() const { return (kernel - 1) * dilation + 1; }
  // Elements past x and its pads that the last window covers (ceil_mode); negative: elements that no window covers.
  int64_t beyond() const { return (count - 1) * stride + extent() - before - size - after; }
};

// `kernel`: empty where attribute kernel_shape says it. Every axis has at least one window, and no number is so large
// that sums of them overflow.
Result<std::vector<WindowAxis>> read_windows(const OnnxCall& c, const Shape& x, std::vector<int64_t> kernel);

// The same of a transposed convolution, whose attributes describe its result: nothing is counted.
Result<std::vector<WindowAxis>> read_spread(const OnnxCall& c, const Shape& x, std::vector<int64_t> kernel);

}  // namespace tessera
