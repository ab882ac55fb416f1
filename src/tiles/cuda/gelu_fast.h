// SPDX-License-Identifier: Apache-2.0
// GELU (the erf one) in 13 instructions instead of some 30: the activation between two matmuls must not take longer
// than moving its operands.
//   gelu(x) = max(x, 0) - |x| * Q(|x|)
//   Q(a) = erfc(a / sqrt 2) / 2 = exp(-a^2 / 2) * t * p(t),   t = 1 / (1 + 0.28 a)
// p: minimax of degree 5 for the absolute error of Q, 1.7e-8. No cancellation for negative x: the relative error of Q
// stays below 5e-4 down to x = -7. Error, all roundings and the approximate reciprocal and exponential included: |x| *
// 2^-21. NaN gives NaN.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#include "archs/cuda/instructions.cuh"
#endif
#include "types/small_float.h"

namespace tessera {

TS_HOST_DEVICE inline float gelu_erf_fast(float x) {
  const float a = fabsf(x);
#ifdef __CUDA_ARCH__
  const float t = cuda::reciprocal_fast(fmaf(0.28f, a, 1.0f));
  const float g = cuda::exp2_fast(a * a * -0.72134752044448170f);  // -log2(e) / 2
#else
  const float t = 1.0f / fmaf(0.28f, a, 1.0f);
  const float g = exp2f(a * a * -0.72134752044448170f);
#endif
  float p = -0.106800009f;
  p = fmaf(p, t, 0.393982671f);
  p = fmaf(p, t, -0.243759122f);
  p = fmaf(p, t, 0.274443943f);
  p = fmaf(p, t, 0.0652491971f);
  p = fmaf(p, t, 0.116883304f);
  const float q = g * (t * p);
  // max(x, 0), but NaN stays; a is infinite only with x, where q is 0 and a * q would be NaN.
  const float positive = x < 0.0f ? 0.0f : x;
  return q == 0.0f ? positive : fmaf(-a, q, positive);
}

}  // namespace tessera
