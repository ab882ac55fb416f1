// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "steps/scalar.h"
#include "steps/step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/rows.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tiles/cpu/codes.h"
#include "tiles/cpu/math.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = hn::MaxLanes(D());

// y[i] = f(x[i], i) over vectors; the last, shorter vector goes through copies on the stack, so that f always sees a
// whole one.
template <class EIn, class EOut, class F>
HWY_INLINE void for_each_vector(const typename EIn::Storage* x, typename EOut::Storage* y, int64_t n, const F& f) {
  const D d;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {  // four chains at once: one polynomial alone waits for its own results
    const V a = f(load_codes<EIn>(d, x + i)), b = f(load_codes<EIn>(d, x + i + kLanes));
    const V c = f(load_codes<EIn>(d, x + i + 2 * kLanes)), e = f(load_codes<EIn>(d, x + i + 3 * kLanes));
    store_codes<EOut>(d, a, y + i);
    store_codes<EOut>(d, b, y + i + kLanes);
    store_codes<EOut>(d, c, y + i + 2 * kLanes);
    store_codes<EOut>(d, e, y + i + 3 * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) store_codes<EOut>(d, f(load_codes<EIn>(d, x + i)), y + i);
  if (i < n) {
    typename EIn::Storage in[kLanes] = {};
    typename EOut::Storage out[kLanes];
    std::memcpy(in, x + i, static_cast<size_t>(n - i) * sizeof(in[0]));
    store_codes<EOut>(d, f(load_codes<EIn>(d, in)), out);
    std::memcpy(y + i, out, static_cast<size_t>(n - i) * sizeof(out[0]));
  }
}

// v[i] = f(v[i], x[i]), both read as vectors.
template <class E, class F>
HWY_INLINE void combine(float* v, const typename E::Storage* x, int64_t n, const F& f) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(f(hn::LoadU(d, v + i), load_codes<E>(d, x + i)), d, v + i);
  if (i < n) {
    typename E::Storage other[kLanes] = {};
    float own[kLanes] = {};
    std::memcpy(other, x + i, static_cast<size_t>(n - i) * sizeof(other[0]));
    std::memcpy(own, v + i, static_cast<size_t>(n - i) * sizeof(own[0]));
    hn::StoreU(f(hn::LoadU(d, own), load_codes<E>(d, other)), d, own);
    std::memcpy(v + i, own, static_cast<size_t>(n - i) * sizeof(own[0]));
  }
}

// Long rows of e4m3, at half the cost of load_codes: read as f16 with its exponent off by 8, whole vectors at a time.
// Returns how many codes were decoded; 0 also where a NaN was among them, which this way would come out as 480.
int64_t decode_e4m3(const uint8_t* codes, int64_t n, float* out) {
  const D d;
  const hn::Repartition<int16_t, D> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const auto factor = hn::Set(d, 256.0f);
  const auto kept = hn::Set(d16, static_cast<int16_t>(0xbf80)), top = hn::Set(d16, int16_t{0x3f80});
  auto nan = hn::Zero(d16);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes + i)));
    const auto bits = hn::And(hn::ShiftLeft<7>(wide), kept);  // sign to bit 15, exponent from bit 10 on
    nan = hn::Or(nan, hn::VecFromMask(d16, hn::Eq(hn::And(bits, top), top)));
    const auto half = hn::BitCast(hn::Repartition<hwy::float16_t, D>(), bits);
    hn::StoreU(hn::Mul(hn::PromoteLowerTo(d, half), factor), d, out + i);
    hn::StoreU(hn::Mul(hn::PromoteUpperTo(d, half), factor), d, out + i + kLanes);
  }
  return hn::AllTrue(d16, hn::Eq(nan, hn::Zero(d16))) ? i : 0;
}

void decode_row_simd(Element element, const void* codes, int64_t first, int64_t n, float* out) {
  const bool known = with_row_element(element, [&](auto e) HWY_ATTR {
    using E = decltype(e);
    const auto* from = static_cast<const typename E::Storage*>(codes) + first;
    int64_t done = 0;
    if constexpr (std::is_same_v<E, E4m3>) done = decode_e4m3(from, n, out);
    for_each_vector<E, F32>(from + done, out + done, n - done, [](V v) HWY_ATTR { return v; });
  });
  if (!known) info(element).decode(codes, first, n, out);
}

// e4m3 in bf16 by integer operations: how many codes were decoded. Normal numbers move their exponent and fraction and
// add the difference of the biases; the eight subnormals, m * 2^-9, come from a table. On bytes, 16 at a time:
int64_t e4m3_bytes_to_bf16(const uint8_t* codes, int64_t n, uint16_t* out) {
  const hn::FixedTag<uint8_t, 16> d;
  const hn::FixedTag<uint16_t, 8> d16;
  const auto set = [&](int bits) HWY_ATTR { return hn::Set(d, static_cast<uint8_t>(bits)); };
  alignas(16) static constexpr uint8_t kHigh[16] = {0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c},
                                       kLow[16] = {0, 0, 0x80, 0xc0, 0, 0x20, 0x40, 0x60};
  const auto small_high = hn::Load(d, kHigh), small_low = hn::Load(d, kLow);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const auto code = hn::LoadU(d, codes + i), magnitude = hn::And(code, set(0x7f));
    const auto small = hn::Lt(magnitude, set(8)), nan = hn::Eq(magnitude, set(0x7f));
    const auto index = hn::And(code, set(7));
    auto high = hn::Add(hn::ShiftRight<4>(magnitude), set((127 - 7) >> 1));
    high = hn::IfThenElse(small, hn::TableLookupBytes(small_high, index), high);
    high = hn::Or(high, hn::Or(hn::And(code, set(0x80)), hn::IfThenElseZero(nan, set(0x7f))));
    auto low = hn::IfThenElse(small, hn::TableLookupBytes(small_low, index), hn::ShiftLeft<4>(magnitude));
    low = hn::Xor(low, hn::IfThenElseZero(nan, set(0x30)));  // the NaN that decode gives
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d, low, high)), d16, out + i);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d, low, high)), d16, out + i + 8);
  }
  return i;
}

// On halves, which is less work where vectors are longer than 16 bytes.
int64_t e4m3_halves_to_bf16(const uint8_t* codes, int64_t n, uint16_t* out) {
  const hn::Repartition<uint16_t, D> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const hn::Repartition<uint8_t, D> bytes;
  constexpr int64_t kCodes = 2 * kLanes;
  const auto set = [&](int bits) HWY_ATTR { return hn::Set(d, static_cast<uint16_t>(bits)); };
  alignas(16) static constexpr uint16_t kSmall[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
  const auto numbers = hn::BitCast(bytes, hn::LoadDup128(d, kSmall));
  int64_t i = 0;
  for (; i + kCodes <= n; i += kCodes) {
    const auto code = hn::PromoteTo(d, hn::LoadU(d8, codes + i)), magnitude = hn::And(code, set(0x7f));
    const auto twice = hn::And(hn::Add(code, code), set(14));  // where a subnormal's number begins in the table
    const auto index = hn::Or(hn::Or(twice, hn::ShiftLeft<8>(twice)), set(0x0100));
    const auto small = hn::BitCast(d, hn::TableLookupBytes(numbers, hn::BitCast(bytes, index)));
    const auto normal = hn::Add(hn::ShiftLeft<4>(magnitude), set((127 - 7) << 7));
    auto number = hn::IfThenElse(hn::Lt(magnitude, set(8)), small, normal);
    number = hn::IfThenElse(hn::Eq(magnitude, set(0x7f)), set(0x7fc0), number);  // the NaN that decode gives
    hn::StoreU(hn::Or(number, hn::And(hn::ShiftLeft<8>(code), set(0x8000))), d, out + i);
  }
  return i;
}

int64_t e4m3_to_bf16(const uint8_t* codes, int64_t n, uint16_t* out) {
  int64_t done = 0;
  if constexpr (kLanes > 4) done = e4m3_halves_to_bf16(codes, n, out);
  return done + e4m3_bytes_to_bf16(codes + done, n - done, out + done);
}

void decode_row_bf16_simd(Element element, const void* codes, int64_t first, int64_t n, uint16_t* out) {
  if (element == Element::bf16) {
    std::memcpy(out, static_cast<const uint16_t*>(codes) + first, static_cast<size_t>(n) * sizeof(uint16_t));
  } else {
    const auto* from = static_cast<const uint8_t*>(codes) + first;
    const int64_t done = e4m3_to_bf16(from, n, out);
    for_each_vector<E4m3, Bf16>(from + done, out + done, n - done, [](V v) HWY_ATTR { return v; });
  }
}

void interleave_rows_simd(const uint16_t* const (&rows)[4], int64_t n, uint16_t* out) {
  const hn::Repartition<uint16_t, D> d;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    hn::StoreInterleaved4(hn::LoadU(d, rows[0] + i), hn::LoadU(d, rows[1] + i), hn::LoadU(d, rows[2] + i),
                          hn::LoadU(d, rows[3] + i), d, out + 4 * i);
  for (; i < n; ++i) {
    for (int j = 0; j < 4; ++j) out[4 * i + j] = rows[j][i];
  }
}

// bf16 at half the cost of store_codes: whole vectors; how many numbers were encoded, 0 where one of them needs
// saturation or is a NaN.
int64_t encode_bf16(const float* in, int64_t n, float factor, uint16_t* codes) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto half = hn::Set(du, 0x7fffu), one = hn::Set(du, 1u), unsigned_bits = hn::Set(du, 0x7fffffffu);
  const V f = hn::Set(d, factor);
  auto largest = hn::Zero(du);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto bits = hn::BitCast(du, hn::Mul(hn::LoadU(d, in + i), f));
    largest = hn::Max(largest, hn::And(bits, unsigned_bits));
    const auto rounded = hn::Add(hn::Add(bits, half), hn::And(hn::ShiftRight<16>(bits), one));
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(rounded)), d16, codes + i);
  }
  return hn::AllTrue(du, hn::Lt(largest, hn::Set(du, 0x7f7f8000u))) ? i : 0;
}

// Probabilities and the like: 4 rows of 16 f32 to [16][4] in bf16. NaN stays NaN, nothing saturates.
void round_group_simd(const float* s, uint16_t* out) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto rounded = [&](const float* from) HWY_ATTR {
    const V v = hn::LoadU(d, from);
    const auto bits = hn::BitCast(du, v);
    const auto up = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u)));
    const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Set(du, 0x7fc00000u), up);
    return hn::TruncateTo(d16, hn::ShiftRight<16>(kept));
  };
  for (int64_t i = 0; i < 16; i += kLanes)
    hn::StoreInterleaved4(rounded(s + i), rounded(s + 16 + i), rounded(s + 32 + i), rounded(s + 48 + i), d16,
                          out + 4 * i);
}

constexpr int64_t kStaged = 256;  // numbers that wait on the stack for the second half of a conversion

// Codes of one byte each, low nibbles, to two per byte; n is even.
void pack_nibbles(const uint8_t* codes, int64_t n, uint8_t* bytes) {
  const hn::Repartition<uint16_t, D> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const auto pairs = hn::BitCast(d16, hn::LoadU(hn::Repartition<uint8_t, D>(), codes + i));
    hn::StoreU(hn::TruncateTo(d8, hn::Or(pairs, hn::ShiftRight<4>(pairs))), d8, bytes + i / 2);
  }
  for (; i < n; i += 2) bytes[i / 2] = static_cast<uint8_t>(codes[i] | codes[i + 1] << 4);
}

// A number at the end of the range that shares its byte with a neighbour goes alone.
void encode_e2m1(const float* in, int64_t n, float factor, void* codes, int64_t first) {
  const auto alone = [&](int64_t i) {
    const float v = in[i] * factor;
    info(Element::e2m1).encode(&v, 1, codes, first + i);
  };
  int64_t i = 0;
  if (n > 0 && first % 2 != 0) alone(i++);
  const V f = hn::Set(D(), factor);
  uint8_t staged[kStaged];
  for (int64_t pairs = (n - i) / 2 * 2; pairs > 0;) {
    const int64_t here = std::min(kStaged, pairs);
    for_each_vector<F32, E2m1>(in + i, staged, here, [&](V v) HWY_ATTR { return hn::Mul(v, f); });
    pack_nibbles(staged, here, static_cast<uint8_t*>(codes) + (first + i) / 2);
    i += here, pairs -= here;
  }
  if (i < n) alone(i);
}

void encode_row_simd(Element element, const float* in, int64_t n, float factor, void* codes, int64_t first) {
  if (element == Element::e2m1) return encode_e2m1(in, n, factor, codes, first);
  const bool known = with_row_element(element, [&](auto e) HWY_ATTR {
    using E = decltype(e);
    auto* to = static_cast<typename E::Storage*>(codes) + first;
    const V f = hn::Set(D(), factor);
    int64_t done = 0;
    if constexpr (std::is_same_v<E, Bf16>) done = encode_bf16(in, n, factor, to);
    for_each_vector<F32, E>(in + done, to + done, n - done, [&](V v) HWY_ATTR { return hn::Mul(v, f); });
  });
  for (int64_t i = 0; i < n && !known; i += kStaged) {
    float staged[kStaged];
    const int64_t here = std::min(kStaged, n - i);
    for (int64_t j = 0; j < here; ++j) staged[j] = in[i + j] * factor;
    info(element).encode(staged, here, codes, first + i);
  }
}

template <Unary fn>
void map_row_of(const float* x, float* y, int64_t n) {
  if constexpr (has_vector_form(fn)) {
    for_each_vector<F32, F32>(x, y, n, [](V v) HWY_ATTR { return apply_vector<fn>(D(), v); });
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = apply_unary<fn>(x[i]);
  }
}

void map_row_simd(Unary fn, const float* x, float* y, int64_t n) {
  switch (fn) {
#define TS_UNARY(name) \
  case Unary::name:    \
    return map_row_of<Unary::name>(x, y, n);
#include "ir/unary.inc"
#undef TS_UNARY
  }
}

// A step without a vector form: its functor, number by number, over pieces of its operand. Steps that take whole rows
// have none; contracts refuse them, so that one here would be our mistake.
void run_functor(const RowStep& s, float* v, int64_t n) {
  const auto run = info(s.kind).run;
  TS_CHECK(run != nullptr, "step ", name_of(s.kind), " does not work on numbers one by one");
  float operand[kStaged];
  for (int64_t i = 0; i < n; i += kStaged) {
    const int64_t here = std::min(kStaged, n - i);
    if (s.matrix != nullptr) decode_row_simd(s.element, s.matrix, s.first + i, here, operand);
    run(s.args, s.vector != nullptr ? s.vector + i : operand, v + i, here);
  }
}

// Steps that have a vector form, and the functor for the others.
void run_steps_simd(std::span<const RowStep> steps, float* v, int64_t n) {
  for (const RowStep& s : steps) {
    switch (s.kind) {
      case StepKind::bias:
        combine<F32>(v, s.vector, n, [](V a, V b) HWY_ATTR { return hn::Add(a, b); });
        break;
      case StepKind::act:
        map_row_simd(s.args.fn, v, v, n);
        break;
      case StepKind::scale:
        combine<F32>(v, s.vector, n, [](V a, V b) HWY_ATTR { return hn::Mul(a, b); });
        break;
      case StepKind::residual:
        with_float_element(s.element, [&](auto e) HWY_ATTR {
          using E = decltype(e);
          combine<E>(v, static_cast<const typename E::Storage*>(s.matrix) + s.first, n,
                     [](V a, V b) HWY_ATTR { return hn::Add(a, b); });
        });
        break;
      case StepKind::quantize:
        break;  // encode_row makes the codes
      default:
        run_functor(s, v, n);
    }
  }
}

void scale_row_simd(float* v, int64_t n, float a, const float* b) {
  const V factor = hn::Set(D(), a);
  if (b != nullptr) {
    combine<F32>(v, b, n, [&](V x, V y) HWY_ATTR { return hn::Mul(x, hn::Mul(factor, y)); });
  } else {
    for_each_vector<F32, F32>(v, v, n, [&](V x) HWY_ATTR { return hn::Mul(x, factor); });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(decode_row_simd);
HWY_EXPORT(decode_row_bf16_simd);
HWY_EXPORT(interleave_rows_simd);
HWY_EXPORT(round_group_simd);
HWY_EXPORT(encode_row_simd);
HWY_EXPORT(map_row_simd);
HWY_EXPORT(run_steps_simd);
HWY_EXPORT(scale_row_simd);

void decode_row(Element element, const void* codes, int64_t first, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(decode_row_simd)(element, codes, first, n, out);
}
void decode_row_bf16(Element element, const void* codes, int64_t first, int64_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(decode_row_bf16_simd)(element, codes, first, n, out);
}
void interleave_rows(const uint16_t* const (&rows)[4], int64_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(interleave_rows_simd)(rows, n, out);
}
void round_group(const float* s, uint16_t* out) { HWY_DYNAMIC_DISPATCH(round_group_simd)(s, out); }
void encode_row(Element element, const float* in, int64_t n, float factor, void* codes, int64_t first) {
  HWY_DYNAMIC_DISPATCH(encode_row_simd)(element, in, n, factor, codes, first);
}
void map_row(Unary fn, const float* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(map_row_simd)(fn, x, y, n); }
void run_steps(std::span<const RowStep> steps, float* v, int64_t n) {
  HWY_DYNAMIC_DISPATCH(run_steps_simd)(steps, v, n);
}
void scale_row(float* v, int64_t n, float a, const float* b) { HWY_DYNAMIC_DISPATCH(scale_row_simd)(v, n, a, b); }

}  // namespace tessera
#endif
