// SPDX-License-Identifier: Apache-2.0
// Vector forms of the functions in ir/unary.inc, compiled once per SIMD target (include between foreach_target and
// HWY_AFTER_NAMESPACE users). Polynomials are minimax fits of our own. Error bounds, checked by math_test.cc over
// all magnitudes (u = 2^-24; FMA targets):
//   exp 3u |y|    erf 2.5u |y|    tanh 4u |y|    sigmoid, silu 6u |y|
//   gelu_quick (6 + 2 |1.702 x|) u |y|    gelu_tanh (6 + 4 |a|) u |y|, a the argument of its exponential
//   gelu_erf 3u |y| + 2u |x|, and 8u |y| for |x| < 1            each plus max(1, |x|) subnormal steps of 2^-149
// NaN stays NaN; exp overflows to Inf and underflows gradually to 0.
#if defined(TESSERA_TILES_CPU_MATH_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_TILES_CPU_MATH_H
#undef TESSERA_TILES_CPU_MATH_H
#else
#define TESSERA_TILES_CPU_MATH_H
#endif

#include "hwy/highway.h"
#include "ir/program.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// (...(first * x + c0) * x + c1 ...) * x + c_last
template <class D, class V>
HWY_INLINE V horner(D, V, V first) {
  return first;
}
template <class D, class V, class... Rest>
HWY_INLINE V horner(D d, V x, V first, float next, Rest... rest) {
  return horner(d, x, hn::MulAdd(first, x, hn::Set(d, next)), rest...);
}

// By comparison: Min and Max of some targets would replace a NaN by the limit.
template <class D, class V>
HWY_INLINE V at_least(D d, V x, float low) {
  const V limit = hn::Set(d, low);
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
}
template <class D, class V>
HWY_INLINE V at_most(D d, V x, float high) {
  const V limit = hn::Set(d, high);
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
}

// Adding 1.5 * 2^23 + offset leaves round(v) + offset in the low bits of the sum: cheaper than rounding and converting.
constexpr float kRoundingShift = 0x1.8p23f;

template <class D, class V>
HWY_INLINE V vector_exp(D d, V x) {
  x = at_most(d, at_least(d, x, -104.0f),
              89.0f);  // e^-104 is below half the smallest subnormal, e^89 above the largest number
  const V shift = hn::Set(d, kRoundingShift + 254);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const V n = hn::Sub(shifted, shift);  // x / ln 2 to the nearest integer
  // ln 2 in two parts; the first has 9 bits, so n times it is exact even without FMA.
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.63p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -0x1.bd0106p-13f), r);
  const V p = horner(d, r, hn::Set(d, 0x1.6dbc64p-10f), 0x1.124148p-7f, 0x1.555454p-5f, 0x1.555486p-3f, 0.5f);
  const V y = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), p, r));
  // 2^n as two factors that are normal numbers: the low bits n + 254 split into halves are both exponents with their
  // bias of 127.
  const hn::RebindToSigned<D> di;
  const auto sum = hn::BitCast(di, shifted), half = hn::ShiftRight<1>(sum);
  return hn::Mul(hn::Mul(y, hn::BitCast(d, hn::ShiftLeft<23>(half))),
                 hn::BitCast(d, hn::ShiftLeft<23>(hn::Sub(sum, half))));
}

// e^x for x <= 0 (NaN stays NaN), with results below 2^-126 as 0; the same error otherwise, a third cheaper.
template <class D, class V>
HWY_INLINE V vector_exp_down(D d, V x) {
  const V shift = hn::Set(d, kRoundingShift + 127);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const V n = hn::Sub(shifted, shift);
  V r = hn::NegMulAdd(n, hn::Set(d, 0x1.63p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -0x1.bd0106p-13f), r);
  const V p = horner(d, r, hn::Set(d, 0x1.6dbc64p-10f), 0x1.124148p-7f, 0x1.555454p-5f, 0x1.555486p-3f, 0.5f);
  const V y = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), p, r));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(hn::RebindToSigned<D>(), shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(y, power));  // n >= -126 from there on
}

// erfc(a) for a >= 0, as 2^-g(a); absolute error 1.2u, relative error 4u below a = 1. From a = 4.2 on it stays at
// erfc(4.2) = 2.9e-9.
template <class D, class V>
HWY_INLINE V vector_erfc(D d, V a) {
  a = at_most(d, a, 4.2f);
  const V h = horner(d, a, hn::Set(d, -0x1.856454p-17f), 0x1.40c9fep-13f, -0x1.bcb7fap-11f, 0x1.2a2916p-9f,
                     -0x1.63b160p-14f, -0x1.c63ce2p-6f, 0x1.2fbc0ep-3f, 0x1.d63e26p-1f, 0x1.a0be88p+0f);
  const V g = hn::Mul(a, h);
  const V shift = hn::Set(d, kRoundingShift + 127);
  const V shifted = hn::Sub(shift, g);
  const V n = hn::Sub(shifted, shift);  // -g to the nearest integer
  const V f = hn::Neg(hn::Add(n, g));   // exact; 2^-g = 2^f * 2^n
  const V p = horner(d, f, hn::Set(d, 0x1.44979ap-13f), 0x1.5f50b2p-10f, 0x1.3b29a0p-7f, 0x1.c6aebep-5f, 0x1.ebfbe0p-3f,
                     0x1.62e430p-1f);
  const hn::RebindToSigned<D> di;
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));  // 2^n, n >= -29
  return hn::Mul(hn::MulAdd(f, p, hn::Set(d, 1.0f)), power);
}

template <class D, class V>
HWY_INLINE V vector_erf(D d, V x) {
  const V a = hn::Abs(x), t = hn::Mul(x, x);
  // x (2/sqrt(pi) + ...): the leading coefficient in two parts, so that small x keep full accuracy.
  const V p = horner(d, t, hn::Set(d, 0x1.496a32p-14f), -0x1.a3f700p-11f, 0x1.5405b2p-8f, -0x1.b7f90ep-6f,
                     0x1.ce2cf8p-4f, -0x1.81273ep-2f);
  const V small = hn::MulAdd(x, hn::MulAdd(p, t, hn::Set(d, 0x1.06eba8p-3f)), x);
  const V large = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), vector_erfc(d, a)), x);
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 1.0f)), small, large);
}

template <class D, class V>
HWY_INLINE V vector_tanh(D d, V x) {
  const V a = hn::Abs(x), t = hn::Mul(x, x), one = hn::Set(d, 1.0f);
  const V p =
      horner(d, t, hn::Set(d, -0x1.76ac1ap-8f), 0x1.5256d8p-6f, -0x1.b84448p-5f, 0x1.110768p-3f, -0x1.555534p-2f);
  const V small = hn::MulAdd(hn::Mul(x, t), p, x);
  const V e = vector_exp(d, hn::Add(a, a));
  const V large = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one))), x);
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), small, large);
}

// y / (1 + e^-u): sigmoid (y = 1) and everything gated by one. With e^-|u| in both halves nothing overflows: small
// results keep their accuracy.
template <class D, class V>
HWY_INLINE V gated(D d, V y, V u) {
  const V one = hn::Set(d, 1.0f), e = vector_exp(d, hn::Neg(hn::Abs(u)));
  return hn::Div(hn::Mul(y, hn::IfThenElse(hn::Lt(u, hn::Zero(d)), e, one)), hn::Add(one, e));
}

// x Phi(x) = max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2: no cancellation for negative x.
template <class D, class V>
HWY_INLINE V vector_gelu_erf(D d, V x) {
  const V a = hn::Abs(x);
  const V c = vector_erfc(d, hn::Mul(a, hn::Set(d, 0.70710678118654752f)));
  return hn::NegMulAdd(hn::Mul(hn::Set(d, 0.5f), a), c, at_least(d, x, 0.0f));
}

template <class D, class V>
HWY_INLINE V vector_gelu_tanh(D d, V x) {
  const V cube = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, 0.044715f), x);
  return gated(d, x, hn::Mul(cube, hn::Set(d, 1.5957691216057308f)));
}

// True for the functions that apply_vector knows; the others are rare enough to go through steps/scalar.h.
constexpr bool has_vector_form(Unary fn) { return fn != Unary::log && fn != Unary::sin && fn != Unary::cos; }

template <Unary fn, class D, class V>
HWY_INLINE V apply_vector(D d, V x) {
  if constexpr (fn == Unary::identity) return x;
  if constexpr (fn == Unary::neg) return hn::Neg(x);
  if constexpr (fn == Unary::abs) return hn::Abs(x);
  if constexpr (fn == Unary::exp) return vector_exp(d, x);
  if constexpr (fn == Unary::sqrt) return hn::Sqrt(x);
  if constexpr (fn == Unary::rsqrt) return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));
  if constexpr (fn == Unary::reciprocal) return hn::Div(hn::Set(d, 1.0f), x);
  if constexpr (fn == Unary::erf) return vector_erf(d, x);
  if constexpr (fn == Unary::tanh) return vector_tanh(d, x);
  if constexpr (fn == Unary::sigmoid) return gated(d, hn::Set(d, 1.0f), x);
  if constexpr (fn == Unary::relu) return at_least(d, x, 0.0f);
  if constexpr (fn == Unary::silu) return gated(d, x, x);
  if constexpr (fn == Unary::gelu_erf) return vector_gelu_erf(d, x);
  if constexpr (fn == Unary::gelu_tanh) return vector_gelu_tanh(d, x);
  if constexpr (fn == Unary::gelu_quick) return gated(d, x, hn::Mul(x, hn::Set(d, 1.702f)));
  if constexpr (fn == Unary::floor) return hn::Floor(x);
  if constexpr (fn == Unary::ceil) return hn::Ceil(x);
  if constexpr (fn == Unary::round) return hn::Round(x);
  if constexpr (fn == Unary::logical_not) return hn::IfThenElseZero(hn::Eq(x, hn::Zero(d)), hn::Set(d, 1.0f));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
