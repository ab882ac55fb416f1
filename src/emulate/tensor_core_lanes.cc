// SPDX-License-Identifier: Apache-2.0
#include "emulate/tensor_core_lanes.h"

#include <algorithm>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "emulate/tensor_core_lanes.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kCoreLanes>;
using DI = hn::RebindToSigned<D>;
using D16 = hn::Rebind<int16_t, D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;
constexpr int64_t kLanes = hn::MaxLanes(D());
constexpr int kVectors = kCoreLanes / kLanes;
constexpr int kNone = -10000;  // exponent of zero
// Above, a product that f32 does not hold is truncated to zero anyway; below, the sum is not made here.
constexpr int kLeastTop = -84;

HWY_INLINE V power_of_two(VI exponent) {
  return hn::BitCast(D(), hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(DI(), 127))));
}

HWY_INLINE VI exponent_of(V c) {
  const DI di;
  const VI e = hn::Sub(hn::ShiftRight<23>(hn::BitCast(di, hn::Abs(c))), hn::Set(di, 127));
  return hn::IfThenElse(hn::RebindMask(di, hn::Eq(c, hn::Zero(D()))), hn::Set(di, kNone), e);
}

// The sum of two integers below 2^31, truncated toward zero to `kept` bits of fraction; exact as an f32 then.
HWY_INLINE V truncate_wide(VI a, VI b, int kept) {
  const hn::Half<DI> dh;
  const hn::Rebind<double, hn::Half<DI>> dd;
  const hn::RebindToUnsigned<decltype(dd)> du;
  const auto mask = hn::Set(du, ~((uint64_t{1} << (52 - kept)) - 1));
  const auto part = [&](auto x, auto y) {
    const auto sum = hn::Add(hn::PromoteTo(dd, x), hn::PromoteTo(dd, y));
    return hn::DemoteTo(hn::Rebind<float, decltype(dd)>(), hn::BitCast(dd, hn::And(hn::BitCast(du, sum), mask)));
  };
  return hn::Combine(D(), part(hn::UpperHalf(dh, a), hn::UpperHalf(dh, b)),
                     part(hn::LowerHalf(dh, a), hn::LowerHalf(dh, b)));
}
// An integer of at most 24 bits.
HWY_INLINE V truncate_short(VI a, int kept) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const auto mask = hn::Set(du, ~((uint32_t{1} << (23 - kept)) - 1));
  return hn::BitCast(d, hn::And(hn::BitCast(du, hn::ConvertTo(d, a)), mask));
}

// One fused sum: `count` products, c in and out. Two accumulators, which take four products in turn, so that 16 terms
// of 27 bits do not overflow, nor 32 of which two of each four are zero.
template <bool kWide>
HWY_INLINE void fuse(const TensorCore& core, const float* x, const int16_t* ex, const float* w, const int16_t* ew,
                     int64_t count, V (&c)[kVectors], VI& least) {
  const D d;
  const DI di;
  const D16 d16;
  hn::Vec<D16> top[kVectors];
  for (int v = 0; v < kVectors; ++v) top[v] = hn::Set(d16, 2 * kNone);
  for (int64_t i = 0; i < count; ++i) {
    const auto e = hn::Set(d16, ex[i]);
    for (int v = 0; v < kVectors; ++v)
      top[v] = hn::Max(top[v], hn::Add(e, hn::LoadU(d16, ew + i * kCoreLanes + v * kLanes)));
  }
  V scale[kVectors], unit[kVectors];
  VI first[kVectors], second[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    VI largest = hn::Max(hn::PromoteTo(di, top[v]), exponent_of(c[v]));
    least = hn::Min(least, hn::IfThenZeroElse(hn::Lt(largest, hn::Set(di, kNone / 2)), largest));
    largest = hn::Max(largest, hn::Set(di, kLeastTop));
    const VI shift = hn::Sub(hn::Set(di, core.fraction_bits), largest);
    scale[v] = power_of_two(shift);
    unit[v] = power_of_two(hn::Neg(shift));
    first[v] = hn::ConvertInRangeTo(di, hn::Mul(c[v], scale[v]));
    second[v] = hn::Zero(di);
  }
  const auto add = [&](int64_t i, VI(&sum)[kVectors]) HWY_ATTR {
    const V xi = hn::Set(d, x[i]);
    for (int v = 0; v < kVectors; ++v) {
      const V product = hn::Mul(xi, hn::LoadU(d, w + i * kCoreLanes + v * kLanes));
      sum[v] = hn::Add(sum[v], hn::ConvertInRangeTo(di, hn::Mul(product, scale[v])));
    }
  };
  for (int64_t i = 0; i < count; i += 8) {
    for (int64_t j = i; j < std::min(count, i + 4); ++j) add(j, first);
    for (int64_t j = i + 4; j < std::min(count, i + 8); ++j) add(j, second);
  }
  for (int v = 0; v < kVectors; ++v) {
    const V sum = kWide ? truncate_wide(first[v], second[v], core.kept_bits)
                        : truncate_short(hn::Add(first[v], second[v]), core.kept_bits);
    c[v] = hn::Mul(sum, unit[v]);
  }
}

bool sum_lanes(const TensorCore& core, const float* x, const int16_t* ex, const float* w, const int16_t* ew, int64_t k,
               float* sums) {
  const D d;
  V c[kVectors];
  for (int v = 0; v < kVectors; ++v) c[v] = hn::LoadU(d, sums + v * kLanes);
  VI least = hn::Zero(DI());
  const bool wide = core.fraction_bits > 16;  // 33 terms of 18 bits fit 24
  for (int64_t at = 0; at < k; at += core.products) {
    const int64_t count = std::min<int64_t>(core.products, k - at);
    const auto run = wide ? fuse<true> : fuse<false>;
    run(core, x + at, ex + at, w + at * kCoreLanes, ew + at * kCoreLanes, count, c, least);
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(c[v], d, sums + v * kLanes);
  return hn::ReduceMin(DI(), least) >= kLeastTop;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(sum_lanes);

constexpr int16_t kZeroExponent = -10000;
constexpr int kLargest = 60;  // of an operand: products stay far below f32's limit
int16_t exponent_of(float x, int least) {
  if (x == 0) return kZeroExponent;
  return static_cast<int16_t>(std::max(static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff) - 127, least));
}
}  // namespace

void CorePanel::pack(const float* w, int least_exponent, int64_t rows, int64_t k) {
  k_ = k;
  w_.assign(static_cast<size_t>(k * kCoreLanes), 0.0f);
  w_exponent_.assign(w_.size(), kZeroExponent);
  largest_w_ = kZeroExponent;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<size_t>(i * kCoreLanes + r);
      w_[at] = w[r * k + i];
      w_exponent_[at] = exponent_of(w[r * k + i], least_exponent);
      largest_w_ = std::max<int>(largest_w_, w_exponent_[at]);
    }
  }
}

void CorePanel::set_row(const float* x, int least_exponent) {
  x_ = x;
  x_exponent_.resize(static_cast<size_t>(k_));
  for (int64_t i = 0; i < k_; ++i) x_exponent_[static_cast<size_t>(i)] = exponent_of(x[i], least_exponent);
  largest_x_ = k_ == 0 ? kZeroExponent : *std::max_element(x_exponent_.begin(), x_exponent_.end());
}

bool CorePanel::sum(const TensorCore& core, int64_t first, int64_t last, float* sums) const {
  if (std::max(largest_w_, largest_x_) > kLargest) return false;
  return HWY_DYNAMIC_DISPATCH(sum_lanes)(core, x_ + first, x_exponent_.data() + first, w_.data() + first * kCoreLanes,
                                         w_exponent_.data() + first * kCoreLanes, last - first, sums);
}

}  // namespace tessera
#endif
