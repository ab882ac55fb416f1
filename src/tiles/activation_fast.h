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
// gelu_erf_e4m3_pair: f16 from u on.
inline constexpr double kActivationErrorInHalf = 0x1p-10;

inline bool is_fast_activation(Unary fn) { return fn == Unary::gelu_erf || fn == Unary::gelu_tanh || fn == Unary::gelu_quick || fn == Unary::silu; }

// Terms of u / q in powers of q^2, q = x / 2.
struct GeluErfTerms {
  static constexpr float c0 = 1.595421387f, c1 = 4 * 7.362838749e-02f, c2 = 16 * -6.457642260e-04f, c3 = 64 * 1.452265680e-06f;
};

TS_HOST_DEVICE inline float tanh_fast(float u) {
#ifdef __CUDA_ARCH__
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(u));
  return y;
#else
  return tanhf(u);
#endif
}

// The activation of 2 q; relu and identity of q itself.
template <Unary kAct>
TS_HOST_DEVICE inline float activate_half_argument(float q) {
  if constexpr (kAct == Unary::identity) return q;
  if constexpr (kAct == Unary::relu) return q < 0.0f ? 0.0f : q;
  float u = q;  // silu
  if constexpr (kAct == Unary::gelu_quick) u = 1.702f * q;
  if constexpr (kAct == Unary::gelu_tanh) u = q * fmaf(8 * 0.7978845608f * 0.044715f, q * q, 2 * 0.7978845608f);
  if constexpr (kAct == Unary::gelu_erf) {
    using T = GeluErfTerms;
    const float t = q * q;
    u = q * fmaf(fmaf(fmaf(T::c3, t, T::c2), t, T::c1), t, T::c0);
  }
  return fmaf(q, tanh_fast(u), q);
}

#ifdef __CUDACC__
// gelu_erf of the two numbers 2 a and 2 b, times `unit`, as e4m3: in f16 from u on, since the result keeps four bits. Contract: `unit` is normal in f16.
__device__ __forceinline__ uint16_t gelu_erf_e4m3_pair(float a, float b, __half2 unit) {
  using T = GeluErfTerms;
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  const __half2 q = *reinterpret_cast<const __half2*>(&pair), t = __hmul2(q, q);
  __half2 u = __hfma2(__float2half2_rn(T::c3), t, __float2half2_rn(T::c2));
  u = __hfma2(u, t, __float2half2_rn(T::c1));
  u = __hmul2(q, __hfma2(u, t, __float2half2_rn(T::c0)));
  asm("tanh.approx.f16x2 %0, %1;" : "=r"(pair) : "r"(*reinterpret_cast<const uint32_t*>(&u)));
  const __half2 scaled = __hmul2(q, unit), y = __hfma2(scaled, *reinterpret_cast<const __half2*>(&pair), scaled);
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(codes) : "r"(*reinterpret_cast<const uint32_t*>(&y)));
  return codes;
}
#endif

}  // namespace tessera
