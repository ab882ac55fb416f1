// SPDX-License-Identifier: Apache-2.0
// A piece of a row at a time, short enough for the first-level cache: magnitudes of its runs, their scales, quotients
// on the stack, codes. Elements are met only through conversions of rows.
#include "tiles/cpu/quantize.h"

#include <algorithm>
#include <limits>

#include "base/buffer.h"
#include "tiles/cpu/rows.h"
#include "types/quantize_array.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/quantize.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = hn::MaxLanes(D());

// Magnitudes compare as integers, NaN above all numbers.
int32_t largest_magnitude(const float* x, int64_t n) {
  const D d;
  const hn::RebindToSigned<D> di;
  auto a = hn::Zero(di), b = hn::Zero(di);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = hn::Max(a, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
    b = hn::Max(b, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i + kLanes))));
  }
  for (; i + kLanes <= n; i += kLanes) a = hn::Max(a, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  int32_t largest = hn::ReduceMax(di, hn::Max(a, b));
  for (; i < n; ++i) largest = std::max(largest, static_cast<int32_t>(bits_of(x[i]) & 0x7fffffffu));
  return largest;
}

// Runs of `length` numbers, the last one perhaps shorter.
void run_magnitudes_simd(const float* x, int64_t n, int64_t length, int32_t* out) {
  for (int64_t i = 0; i < n; i += length) *out++ = largest_magnitude(x + i, std::min(length, n - i));
}

// y = x / divisor of its run, at most max in magnitude; 0 under a divisor that is no positive number. Adding +0 turns
// -0 into +0, adding -0 changes nothing.
void divide_runs_simd(const float* x, int64_t n, int64_t length, const float* divisors, float max, float zero,
                      float* y) {
  const D d;
  const V top = hn::Set(d, max), bottom = hn::Set(d, -max), none = hn::Set(d, zero);
  for (int64_t begin = 0; begin < n; begin += length) {
    const int64_t end = std::min(n, begin + length);
    const float divisor = *divisors++;
    if (!(divisor > 0 && divisor < std::numeric_limits<float>::infinity())) {
      std::fill(y + begin, y + end, 0.0f);
      continue;
    }
    const V by = hn::Set(d, divisor);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const V q = hn::Add(hn::Div(hn::LoadU(d, x + i), by), none);
      const V high = hn::IfThenElse(hn::Gt(q, top), top, q);
      hn::StoreU(hn::IfThenElse(hn::Lt(high, bottom), bottom, high), d, y + i);
    }
    for (; i < end; ++i) {
      const float q = x[i] / divisor + zero, high = q > max ? max : q;
      y[i] = high < -max ? -max : high;
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(run_magnitudes_simd);
HWY_EXPORT(divide_runs_simd);

constexpr int64_t kPiece = 1024;  // numbers whose quotients wait on the stack
constexpr int64_t kRuns = 128;    // scales of a piece: blocks of 8 fill it

// Scales of runs with these largest magnitudes, by the type's rule: each magnitude is a block of one number.
void make_run_scales(const QuantType& type, const int32_t* magnitudes, int64_t n, const RowPlace& to, int64_t first) {
  float amax[kRuns];
  for (int64_t i = 0; i < n; ++i) amax[i] = float_of(static_cast<uint32_t>(magnitudes[i]));
  QuantType alone = type;
  alone.scale.granularity = Granularity::kBlock, alone.scale.block = 1;
  make_scales(alone, amax, 1, n, to.scale2, static_cast<uint8_t*>(to.scale) + packed_bytes(type.scale.element, first));
}

}  // namespace

void quantize_row(const QuantType& type, const float* x, int64_t n, const RowPlace& to) {
  const bool blocks = type.scale.granularity == Granularity::kBlock;
  const int64_t run = blocks ? type.scale.block : std::max<int64_t>(n, 1);
  const float max = static_cast<float>(info(type.element).max), zero = blocks ? 0.0f : -0.0f;
  float scale2 = 1;
  if (type.scale2.granularity != Granularity::kNone) info(type.scale2.element).decode(to.scale2, 0, 1, &scale2);
  // Runs that are longer than a piece have their scale made first, and lie in several pieces.
  const int64_t piece = run > kPiece ? kPiece : std::min(kPiece / run, kRuns) * run;
  for (int64_t begin = 0; begin < n;) {
    const int64_t end = run > kPiece ? std::min(n, begin + run) : n;
    for (int64_t c = begin; c < end; c += piece) {
      const int64_t count = std::min(piece, end - c), at = to.first_scale + c / run, runs = divide_up(count, run);
      if (type.dynamic && (run <= kPiece || c == begin)) {
        int32_t magnitudes[kRuns];
        HWY_DYNAMIC_DISPATCH(run_magnitudes_simd)(x + c, run > kPiece ? end - c : count, run, magnitudes);
        make_run_scales(type, magnitudes, runs, to, at);
      }
      float divisors[kRuns], quotients[kPiece];
      decode_row(type.scale.element, to.scale, at, runs, divisors);
      for (int64_t i = 0; i < runs; ++i) divisors[i] *= scale2;
      HWY_DYNAMIC_DISPATCH(divide_runs_simd)(x + c, count, run, divisors, max, zero, quotients);
      encode_row(type.element, quotients, count, 1.0f, to.codes, to.first + c);
    }
    begin = end;
  }
}

}  // namespace tessera
#endif
