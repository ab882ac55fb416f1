// SPDX-License-Identifier: Apache-2.0
// Functions of one f32 number, host and device: what the program step `act` and the op `map` compute, one element at a
// time. CUDA kernels call apply_unary<fn> inside their loops; CPU kernels have vector forms (cpu/math.h) and come here
// for the rare functions. Errors: a few ulp of the result, but for the GELUs, which are within |x| * 2^-23 of the exact
// value (1 + erf cancels for negative x).
#pragma once

#include <cmath>

#include "ir/program.h"
#include "types/small_float.h"

namespace tessera {

TS_HOST_DEVICE inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
TS_HOST_DEVICE inline float gelu_erf(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }
// x * (1 + tanh(u)) / 2 = x / (1 + exp(-2u)): one exponential, and no cancellation where tanh is near -1.
TS_HOST_DEVICE inline float gelu_tanh(float x) {
  return x / (1.0f + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
}
TS_HOST_DEVICE inline float gelu_quick(float x) { return x / (1.0f + expf(-1.702f * x)); }

template <Unary fn>
TS_HOST_DEVICE inline float apply_unary(float x) {
  if constexpr (fn == Unary::identity) return x;
  if constexpr (fn == Unary::neg) return -x;
  if constexpr (fn == Unary::abs) return fabsf(x);
  if constexpr (fn == Unary::exp) return expf(x);
  if constexpr (fn == Unary::log) return logf(x);
  if constexpr (fn == Unary::sqrt) return sqrtf(x);
  if constexpr (fn == Unary::rsqrt) return 1.0f / sqrtf(x);
  if constexpr (fn == Unary::reciprocal) return 1.0f / x;
  if constexpr (fn == Unary::erf) return erff(x);
  if constexpr (fn == Unary::tanh) return tanhf(x);
  if constexpr (fn == Unary::sigmoid) return sigmoid(x);
  if constexpr (fn == Unary::relu) return x < 0.0f ? 0.0f : x;  // NaN stays NaN
  if constexpr (fn == Unary::silu) return x / (1.0f + expf(-x));
  if constexpr (fn == Unary::gelu_erf) return gelu_erf(x);
  if constexpr (fn == Unary::gelu_tanh) return gelu_tanh(x);
  if constexpr (fn == Unary::gelu_quick) return gelu_quick(x);
  if constexpr (fn == Unary::floor) return floorf(x);
  if constexpr (fn == Unary::ceil) return ceilf(x);
  if constexpr (fn == Unary::round) return rintf(x);  // ties to even
  if constexpr (fn == Unary::sin) return sinf(x);
  if constexpr (fn == Unary::cos) return cosf(x);
  if constexpr (fn == Unary::logical_not) return x == 0.0f ? 1.0f : 0.0f;
}

// The same, chosen while running.
TS_HOST_DEVICE inline float apply_unary(Unary fn, float x) {
  switch (fn) {
#define TS_UNARY(name) \
  case Unary::name:    \
    return apply_unary<Unary::name>(x);
#include "ir/unary.inc"
#undef TS_UNARY
  }
  return x;
}

}  // namespace tessera
