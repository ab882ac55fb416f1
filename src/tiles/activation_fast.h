// SPDX-License-Identifier: Apache-2.0
// Activations between two matmuls whose result is 16 or 8 bits wide, in as few instructions as that width allows: they must not take longer than the products they hide
// behind. All are x (1 + tanh(u(x))) / 2, u odd: silu u = x / 2, gelu_quick u = 0.851 x, gelu_tanh as defined, gelu_erf u = minimax of log(p / (1 - p)) / 2 for
// p = erfc(-x / sqrt 2) / 2, which leaves |x| * 2^-15.6 (and is monotone, so large |x| need no care).
// Error: at most |x| * kActivationError, that of the tensor cores' neighbour MUFU.TANH (2^-11 of its result, halved) and u's: as much as rounding x itself to f16.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif
#include "ir/program.h"
#include "types/small_float.h"

namespace tessera {

inline constexpr double kActivationError = 0x1.2p-12;
// activate_e4m3_pair: f16 from u on.
inline constexpr double kActivationErrorInHalf = 0x1p-10;

// u(2 q) = q * (c0 + c1 q^2 + c2 q^4 + c3 q^6), q half the argument: one code for all of them.
struct SmoothActivation {
  bool present = false;
  float c[4] = {};

  // The activation of 2 q. |q| up to 1e18.
  TS_HOST_DEVICE float operator()(float q) const {
    const float t = q * q;
    const float u = q * fmaf(fmaf(fmaf(c[3], t, c[2]), t, c[1]), t, c[0]);
#ifdef __CUDA_ARCH__
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(u));
    return fmaf(q, y, q);
#else
    return fmaf(q, tanhf(u), q);
#endif
  }
};

inline bool is_fast_activation(Unary fn) { return fn == Unary::gelu_erf || fn == Unary::gelu_tanh || fn == Unary::gelu_quick || fn == Unary::silu; }

// Contract: is_fast_activation(fn), or identity, which is absent.
inline SmoothActivation smooth_activation(Unary fn) {
  constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
  switch (fn) {
    case Unary::silu: return {true, {1.0f}};
    case Unary::gelu_quick: return {true, {1.702f}};
    case Unary::gelu_tanh: return {true, {2 * kRoot, 8 * kRoot * 0.044715f}};
    case Unary::gelu_erf: return {true, {1.595421387f, 4 * 7.362838749e-02f, 16 * -6.457642260e-04f, 64 * 1.452265680e-06f}};
    default: return {};
  }
}

#ifdef __CUDACC__
// Activations of the two numbers 2 a and 2 b, times `unit`, as e4m3: in f16 from u on, since the result keeps four bits. Contract: `unit` is normal in f16 and at most 2^12.
__device__ __forceinline__ uint16_t activate_e4m3_pair(const SmoothActivation& act, float a, float b, __half2 unit) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  // Below -8 results are 0, and stay so: an infinite product with unit would make NaN of it. NaN stays.
  const __half2 q = __hmax2_nan(*reinterpret_cast<const __half2*>(&pair), __float2half2_rn(-8.0f)), t = __hmul2(q, q);
  __half2 u = __hfma2(__float2half2_rn(act.c[3]), t, __float2half2_rn(act.c[2]));
  u = __hfma2(u, t, __float2half2_rn(act.c[1]));
  u = __hmul2(q, __hfma2(u, t, __float2half2_rn(act.c[0])));
  asm("tanh.approx.f16x2 %0, %1;" : "=r"(pair) : "r"(*reinterpret_cast<const uint32_t*>(&u)));
  const __half2 scaled = __hmul2(q, unit), y = __hfma2(scaled, *reinterpret_cast<const __half2*>(&pair), scaled);
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(codes) : "r"(*reinterpret_cast<const uint32_t*>(&y)));
  return codes;
}
#endif

}  // namespace tessera
