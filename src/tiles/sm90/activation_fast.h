// SPDX-License-Identifier: Apache-2.0
// Activations between two matmuls whose result is 16 or 8 bits wide, in as few instructions as that width allows: they
// must not take longer than the products they hide behind. All are x (1 + tanh(u(x))) / 2, u odd: silu u = x / 2,
// gelu_quick u = 0.851 x, gelu_tanh as defined, gelu_erf u = minimax of log(p / (1 - p)) / 2 for p = erfc(-x / sqrt 2)
// / 2, which leaves |x| * 2^-15.6 (and is monotone, so large |x| need no care). Error: at most |x| * kActivationError,
// that of the tensor cores' neighbour MUFU.TANH (2^-11 of its result, halved) and u's: as much as rounding x itself to
// f16. relu, for which tanh would be the sign, is exact.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif
#include "archs/planted_fault.h"
#include "ir/program.h"
#include "types/small_float.h"

namespace tessera {

inline constexpr double kActivationError = 0x1.2p-12;
// activate_half_pairs, for results in e4m3 (steps of 2^-4): six roundings to f16, tanh's 2^-11, and 2^-12.8 of u in two
// terms. At most 1.8e-3 over 1.6 million numbers with tanh's error at its worst.
inline constexpr double kActivationErrorInHalf = 0x1p-9;

// u(2 q) = q * (c0 + c1 q^2 + c2 q^4 + c3 q^6), q half the argument: one code for all of them.
struct SmoothActivation {
  bool present = false;
  bool relu = false;  // c and half are not read
  float c[4] = {};
  // In f16 two terms do. The second is never 0: where q^2 overflows, u must be infinite, not NaN.
  float half[2] = {};

  // relu of 2 q, exact; NaN stays NaN.
  TS_HOST_DEVICE static float twice_positive(float q) { return q < 0.0f ? 0.0f : q + q; }
  // The activation of 2 q. |q| up to 1e18.
  TS_HOST_DEVICE float operator()(float q) const {
    if (relu) return twice_positive(q);
    const float t = q * q;
    return fmaf(q, tanh_of(q * fmaf(fmaf(fmaf(c[3], t, c[2]), t, c[1]), t, c[0])), q);
  }
  // The same for many numbers, side by side.
  template <int kCount>
  TS_HOST_DEVICE void run(float* q) const {
    relu ? run_relu<kCount>(q) : run_smooth<kCount>(q);
  }
  // Where it is known which of the two it is: a branch between the numbers costs registers that wide tiles do not have.
  template <int kCount>
  TS_HOST_DEVICE static void run_relu(float* q) {
    for (int i = 0; i < kCount; ++i) q[i] = twice_positive(q[i]);
  }
  template <int kCount>
  TS_HOST_DEVICE void run_smooth(float* q) const {
    float t[kCount], u[kCount];
    for (int i = 0; i < kCount; ++i) t[i] = q[i] * q[i];
    for (int i = 0; i < kCount; ++i) u[i] = planted(Fault::kShortActivation) ? c[2] : fmaf(c[3], t[i], c[2]);
    for (int i = 0; i < kCount; ++i) u[i] = fmaf(u[i], t[i], c[1]);
    for (int i = 0; i < kCount; ++i) u[i] = fmaf(u[i], t[i], c[0]);
    for (int i = 0; i < kCount; ++i) u[i] = tanh_of(q[i] * u[i]);
    for (int i = 0; i < kCount; ++i) q[i] = fmaf(q[i], u[i], q[i]);
  }

  static TS_HOST_DEVICE float tanh_of(float u) {
#ifdef __CUDA_ARCH__
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(u));
    return y;
#else
    return tanhf(u);
#endif
  }
};

inline bool is_fast_activation(Unary fn) {
  return fn == Unary::gelu_erf || fn == Unary::gelu_tanh || fn == Unary::gelu_quick || fn == Unary::silu ||
         fn == Unary::relu;
}

// Of results of 16 bits, relative to the argument, and where e4m3 ones are made in f16.
inline double fast_activation_error(Unary fn) { return fn == Unary::relu ? 0 : kActivationError; }
inline double fast_activation_error_in_half(Unary fn) { return fn == Unary::relu ? 0 : kActivationErrorInHalf; }

// Contract: is_fast_activation(fn), or identity, which is absent.
inline SmoothActivation smooth_activation(Unary fn) {
  constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
  constexpr float kTiny = 0x1p-24f;
  switch (fn) {
    case Unary::relu:
      return {true, true};
    case Unary::silu:
      return {true, false, {1.0f}, {1.0f, kTiny}};
    case Unary::gelu_quick:
      return {true, false, {1.702f}, {1.702f, kTiny}};
    case Unary::gelu_tanh:
      return {true, false, {2 * kRoot, 8 * kRoot * 0.044715f}, {2 * kRoot, 8 * kRoot * 0.044715f}};
    case Unary::gelu_erf:
      return {true,
              false,
              {1.595421387f, 4 * 7.362838749e-02f, 16 * -6.457642260e-04f, 64 * 1.452265680e-06f},
              {2 * 0.79880144f, 8 * 0.03528205f}};
    default:
      return {};
  }
}

#ifdef __CUDACC__
// The activations of 2 v, times `unit`, in f16. Contract: `unit` lies between 2^-7 (a result that is more than f16
// holds saturates e4m3 anyway) and 2^10 (what f16 loses of numbers below 2^-14 is less than a hundredth of e4m3's
// smallest step).
template <int kPairs>
__device__ __forceinline__ void activate_half_pairs(const SmoothActivation& act, const float (&v)[2 * kPairs],
                                                    __half2 unit, uint32_t (&pairs)[kPairs]) {
  __half2 q[kPairs], u[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {  // finite, so that far below zero q - q is 0
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pairs[i]) : "f"(v[2 * i + 1]), "f"(v[2 * i]));
    q[i] = *reinterpret_cast<const __half2*>(&pairs[i]);
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) u[i] = __hmul2(q[i], q[i]);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) u[i] = __hfma2(__float2half2_rn(act.half[1]), u[i], __float2half2_rn(act.half[0]));
#pragma unroll
  for (int i = 0; i < kPairs; ++i) u[i] = __hmul2(q[i], u[i]);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) asm("tanh.approx.f16x2 %0, %0;" : "+r"(*reinterpret_cast<uint32_t*>(&u[i])));
#pragma unroll
  for (int i = 0; i < kPairs; ++i) q[i] = __hfma2(q[i], u[i], q[i]);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const __half2 y = __hmul2(q[i], unit);
    pairs[i] = *reinterpret_cast<const uint32_t*>(&y);
  }
}
#endif

}  // namespace tessera
