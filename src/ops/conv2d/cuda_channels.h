// SPDX-License-Identifier: Apache-2.0
// What the convolutions without tensor cores share: where windows lie, as a kernel takes it by value, and the scales
// that multiply their sums.
#pragma once

#include <span>

#include "ops/conv2d/conv2d.h"
#include "ops/device_program.h"

namespace tessera {

struct DeviceWindows {
  int64_t image_stride = 0, line_stride = 0, pixel_stride = 0;  // of x, in elements
  int height = 0, width = 0, out_width = 0;
  int kh = 1, kw = 1, sh = 1, sw = 1, dh = 1, dw = 1, top = 0, left = 0;
  FastDivide out_height;

  static DeviceWindows of(const Conv2dProblem& q) {
    DeviceWindows d;
    d.image_stride = q.strides[0], d.line_stride = q.strides[1], d.pixel_stride = q.strides[2];
    const auto as_int = [](int64_t v) { return static_cast<int>(v); };
    d.height = as_int(q.height), d.width = as_int(q.width), d.out_width = as_int(q.out_width);
    d.kh = as_int(q.kh), d.kw = as_int(q.kw), d.sh = as_int(q.sh), d.sw = as_int(q.sw);
    d.dh = as_int(q.dh), d.dw = as_int(q.dw), d.top = as_int(q.top), d.left = as_int(q.left);
    d.out_height = FastDivide(static_cast<uint32_t>(q.out_height));
    return d;
  }
};

// Positions of pixels and taps have 31 bits.
inline Verdict accepts_device_windows(const Conv2dProblem& q) {
  constexpr int64_t kMost = int64_t{1} << 28;
  for (const int64_t v : {q.height, q.width, q.out_height, q.out_width, q.k, q.top, q.left, q.kh * q.dh, q.kw * q.dw,
                          q.out_height * q.sh, q.out_width * q.sw})
    TS_REQUIRE(v <= kMost, "images, windows and their padding reach over at most ", kMost, " pixels");
  TS_REQUIRE(q.pixels() * q.groups * q.n <= kMaxDeviceElements, "too many results for 31-bit indices");
  return {};
}

// Scales of w: one for all, or one per row of it.
struct DeviceSumScales {
  const float *x = nullptr, *w = nullptr;
  bool by_row = false;

  static DeviceSumScales of(const TensorView& x, const TensorView& w) {
    return {static_cast<const float*>(x.scale), static_cast<const float*>(w.scale),
            w.desc->type.scale.granularity == Granularity::kChannel};
  }
};

// SassPromise::local
inline constexpr const char* kCalledFunctions =
    "functions that no transformer uses as activation (sin, cos, log ...) are called, not inlined";

}  // namespace tessera
