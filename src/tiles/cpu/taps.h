// SPDX-License-Identifier: Apache-2.0
// Sums of products number by number, in the widest SIMD of this machine: what a depthwise convolution makes of the
// channels of a few pixels.
#pragma once

#include <cstdint>

namespace tessera {

struct Tap {
  const float *x, *w;
};

// y[i] = sum over t of taps[t].x[i] * taps[t].w[i], i < n; over t in order with one rounding per step (FMA; two on x86
// without it).
void sum_taps(const Tap* taps, int64_t count, int64_t n, float* y);

}  // namespace tessera
