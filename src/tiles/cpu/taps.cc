// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/taps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/taps.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void sum_taps_simd(const Tap* taps, int64_t count, int64_t n, float* y) {
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {  // four sums at once: one waits for its own additions
    auto a = hn::Zero(d), b = a, c = a, e = a;
    for (int64_t t = 0; t < count; ++t) {
      const float *x = taps[t].x + i, *w = taps[t].w + i;
      a = hn::MulAdd(hn::LoadU(d, x), hn::LoadU(d, w), a);
      b = hn::MulAdd(hn::LoadU(d, x + lanes), hn::LoadU(d, w + lanes), b);
      c = hn::MulAdd(hn::LoadU(d, x + 2 * lanes), hn::LoadU(d, w + 2 * lanes), c);
      e = hn::MulAdd(hn::LoadU(d, x + 3 * lanes), hn::LoadU(d, w + 3 * lanes), e);
    }
    hn::StoreU(a, d, y + i);
    hn::StoreU(b, d, y + i + lanes);
    hn::StoreU(c, d, y + i + 2 * lanes);
    hn::StoreU(e, d, y + i + 3 * lanes);
  }
  for (; i < n; i += lanes) {
    const size_t left = static_cast<size_t>(n - i < lanes ? n - i : lanes);
    auto a = hn::Zero(d);
    for (int64_t t = 0; t < count; ++t)
      a = hn::MulAdd(hn::LoadN(d, taps[t].x + i, left), hn::LoadN(d, taps[t].w + i, left), a);
    hn::StoreN(a, d, y + i, left);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(sum_taps_simd);

void sum_taps(const Tap* taps, int64_t count, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(sum_taps_simd)(taps, count, n, y);
}

}  // namespace tessera
#endif
