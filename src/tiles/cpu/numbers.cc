// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/buffer.h"
#include "tiles/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/numbers.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
constexpr int64_t kLanes = hn::MaxLanes(D());

// Codes of 4 bits by a table of their 16 numbers; n is even.
void decode_nibbles_simd(const uint8_t* codes, int64_t n, const uint8_t* low, const uint8_t* high, uint16_t* out) {
  const hn::FixedTag<uint8_t, 16> d;
  const hn::FixedTag<uint16_t, 8> d16;
  const auto lows = hn::LoadU(d, low), highs = hn::LoadU(d, high);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const auto both = hn::LoadU(d, codes + i / 2);
    const auto even = hn::And(both, hn::Set(d, uint8_t{15})), odd = hn::ShiftRight<4>(both);
    const auto first = hn::InterleaveLower(d, even, odd), second = hn::InterleaveUpper(d, even, odd);
    const auto low1 = hn::TableLookupBytes(lows, first), high1 = hn::TableLookupBytes(highs, first);
    const auto low2 = hn::TableLookupBytes(lows, second), high2 = hn::TableLookupBytes(highs, second);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d, low1, high1)), d16, out + i);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d, low1, high1)), d16, out + i + 8);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d, low2, high2)), d16, out + i + 16);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d, low2, high2)), d16, out + i + 24);
  }
  for (; i < n; ++i) {
    const int code = codes[i / 2] >> (i % 2 * 4) & 15;
    out[i] = static_cast<uint16_t>(low[code] | high[code] << 8);
  }
}

// What is done to each product code * scale: nothing, or rounding to the nearest even number of a narrower float,
// saturating.
struct Keep {
  explicit HWY_INLINE Keep(const ElementInfo*) {}
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> v) const { return v; }
};
struct Round {
  int drop;
  float least, unit, most;
  explicit HWY_INLINE Round(const ElementInfo* e)
      : drop(23 - e->mantissa_bits),
        least(std::ldexp(1.0f, e->min_exponent)),
        unit(std::ldexp(1.0f,
                        e->min_exponent + drop)),  // its last place is the subnormal step: adding it rounds to that
        most(static_cast<float>(e->max)) {}
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> v) const {
    const D d;
    const hn::RebindToUnsigned<D> du;
    const auto magnitude = hn::Abs(v);
    const auto bits = hn::BitCast(du, magnitude), odd = hn::And(hn::ShiftRightSame(bits, drop), hn::Set(du, 1u));
    const auto up = hn::Add(hn::Add(bits, hn::Set(du, (1u << (drop - 1)) - 1)), odd);
    const auto normal = hn::BitCast(d, hn::And(up, hn::Set(du, ~0u << drop)));
    const auto small = hn::Sub(hn::Add(magnitude, hn::Set(d, unit)), hn::Set(d, unit));
    const auto rounded = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, least)), small, normal);
    return hn::CopySign(hn::IfThenElse(hn::Gt(rounded, hn::Set(d, most)), hn::Set(d, most), rounded), v);  // NaN stays
  }
};

// Words of 32 bits: a number of f32, or two neighbouring ones of bf16, both under the word's factor. The product of
// bf16 numbers is taken in f32, of which bf16 holds the upper half exactly.
template <class After>
HWY_INLINE void multiply_words(float* v, hn::Vec<D> factor, const After& after) {
  hn::StoreU(after(hn::Mul(hn::LoadU(D(), v), factor)), D(), v);
}
template <class After>
HWY_INLINE void multiply_words(uint16_t* v, hn::Vec<D> factor, const After& after) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<uint16_t, D> d16;
  const auto words = hn::BitCast(du, hn::LoadU(d16, v)), upper = hn::Set(du, 0xffff0000u);
  const auto first = hn::BitCast(du, after(hn::Mul(hn::BitCast(d, hn::ShiftLeft<16>(words)), factor)));
  const auto second = hn::BitCast(du, after(hn::Mul(hn::BitCast(d, hn::And(words, upper)), factor)));
  hn::StoreU(hn::BitCast(d16, hn::Or(hn::And(second, upper), hn::ShiftRight<16>(first))), d16, v);
}

// v[i] *= scales[(i + offset) / block], i < n; what is left of a block goes through a copy on the stack.
template <class T, class After>
void scale_blocks(T* v, int64_t n, const float* scales, int64_t block, int64_t offset, const After& after) {
  constexpr int64_t kStep = kLanes * sizeof(float) / sizeof(T);
  for (int64_t i = 0; i < n; ++scales) {
    const int64_t end = std::min(n, i + block - offset);
    offset = 0;
    const auto factor = hn::Set(D(), *scales);
    for (; i + kStep <= end; i += kStep) multiply_words(v + i, factor, after);
    if (i == end) continue;
    T last[kStep] = {};
    std::copy(v + i, v + end, last);
    multiply_words(last, factor, after);
    std::copy(last, last + (end - i), v + i);
    i = end;
  }
}

// Word i of a panel is multiplied by factors[i % period]. Contract: both counts are multiples of 16.
template <class T, class After>
void scale_words(T* v, int64_t words, const float* factors, int64_t period, const After& after) {
  constexpr int64_t kNumbers = sizeof(float) / sizeof(T);
  for (int64_t i = 0; i < words; i += period) {
    for (int64_t j = 0; j < period; j += kLanes)
      multiply_words(v + (i + j) * kNumbers, hn::LoadU(D(), factors + j), after);
  }
}

// `round`: the element that products are rounded to, or null.
template <class T>
void scale_blocks_of(T* v, int64_t n, const float* scales, int64_t block, int64_t offset, const ElementInfo* round) {
  round != nullptr ? scale_blocks(v, n, scales, block, offset, Round(round))
                   : scale_blocks(v, n, scales, block, offset, Keep(round));
}
template <class T>
void scale_words_of(T* v, int64_t words, const float* factors, int64_t period, const ElementInfo* round) {
  round != nullptr ? scale_words(v, words, factors, period, Round(round))
                   : scale_words(v, words, factors, period, Keep(round));
}
void scale_blocks_f32(float* v, int64_t n, const float* scales, int64_t block, int64_t offset,
                      const ElementInfo* round) {
  scale_blocks_of(v, n, scales, block, offset, round);
}
void scale_blocks_bf16(uint16_t* v, int64_t n, const float* scales, int64_t block, int64_t offset,
                       const ElementInfo* round) {
  scale_blocks_of(v, n, scales, block, offset, round);
}
void scale_words_f32(float* v, int64_t words, const float* factors, int64_t period, const ElementInfo* round) {
  scale_words_of(v, words, factors, period, round);
}
void scale_words_bf16(uint16_t* v, int64_t words, const float* factors, int64_t period, const ElementInfo* round) {
  scale_words_of(v, words, factors, period, round);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(decode_nibbles_simd);
HWY_EXPORT(scale_blocks_f32);
HWY_EXPORT(scale_blocks_bf16);
HWY_EXPORT(scale_words_f32);
HWY_EXPORT(scale_words_bf16);

namespace {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kChunk = 512;  // numbers that are brought from one form to another at a time
constexpr int64_t kBlocks = 64;  // blocks of scales that are decoded at a time

void widen(const uint16_t* in, int64_t n, float* out) { decode_row(Element::bf16, in, 0, n, out); }
// Contract: bf16 holds the numbers.
void narrow(const float* in, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(in[i]) >> 16);
}

void scale_in_blocks(float* v, int64_t n, const float* scales, int64_t block, int64_t offset,
                     const ElementInfo* round) {
  HWY_DYNAMIC_DISPATCH(scale_blocks_f32)(v, n, scales, block, offset, round);
}
void scale_in_blocks(uint16_t* v, int64_t n, const float* scales, int64_t block, int64_t offset,
                     const ElementInfo* round) {
  HWY_DYNAMIC_DISPATCH(scale_blocks_bf16)(v, n, scales, block, offset, round);
}
void scale_panel(float* v, int64_t words, const float* factors, int64_t period, const ElementInfo* round) {
  HWY_DYNAMIC_DISPATCH(scale_words_f32)(v, words, factors, period, round);
}
void scale_panel(uint16_t* v, int64_t words, const float* factors, int64_t period, const ElementInfo* round) {
  HWY_DYNAMIC_DISPATCH(scale_words_bf16)(v, words, factors, period, round);
}

}  // namespace

int significand_bits(Element element) {
  const ElementInfo& e = info(element);
  return e.kind == ElementKind::kFloat ? e.mantissa_bits + 1 : std::ilogb(e.max) + 1;
}

int significand_bits(const QuantType& type) {
  if (type.product) return significand_bits(*type.product);
  const int code = significand_bits(type.element);
  if (!has_block_scales(type) || is_power(type.scale.element)) return code;
  return code + significand_bits(type.scale.element);
}

NumberReader::NumberReader(const QuantType& type, Element to)
    : type_(type), to_(to), round_(type.product ? &info(*type.product) : nullptr) {
  if (info(type.element).bits != 4) return;
  for (uint8_t code = 0; code < 16; ++code) {
    float number;
    info(type.element).decode(&code, 0, 1, &number);
    uint16_t bits;
    narrow(&number, 1, &bits);
    low_[code] = static_cast<uint8_t>(bits), high_[code] = static_cast<uint8_t>(bits >> 8);
  }
}

template <class T>
void NumberReader::decode_codes(const void* codes, int64_t first, int64_t n, T* out) const {
  constexpr bool kNarrow = sizeof(T) == sizeof(uint16_t);
  if (info(type_.element).bits == 4) {
    const auto* bytes = static_cast<const uint8_t*>(codes);
    if (first % 2 != 0 && n > 0) {  // a row that begins inside a byte
      const int code = bytes[first / 2] >> 4;
      const uint16_t number = static_cast<uint16_t>(low_[code] | high_[code] << 8);
      if constexpr (kNarrow) {
        *out = number;
      } else {
        widen(&number, 1, out);
      }
      ++first, ++out, --n;
    }
    if constexpr (kNarrow) {
      HWY_DYNAMIC_DISPATCH(decode_nibbles_simd)(bytes + first / 2, n, low_, high_, out);
    } else {
      uint16_t narrow_numbers[kChunk];
      for (int64_t i = 0; i < n; i += kChunk) {
        const int64_t count = std::min(kChunk, n - i);
        HWY_DYNAMIC_DISPATCH(decode_nibbles_simd)(bytes + (first + i) / 2, count, low_, high_, narrow_numbers);
        widen(narrow_numbers, count, out + i);
      }
    }
  } else if constexpr (!kNarrow) {
    decode_row(type_.element, codes, first, n, out);
  } else if (is_exact_in_bf16(type_.element)) {
    decode_row_bf16(type_.element, codes, first, n, out);
  } else {
    float wide[kChunk];
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      decode_row(type_.element, codes, first + i, count, wide);
      narrow(wide, count, out + i);
    }
  }
}

template <class T>
void NumberReader::read_row_as(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, T* out) const {
  decode_codes(m.codes, first, n, out);
  if (!has_block_scales(type_)) return;
  const int64_t block = type_.scale.block;
  float scales[kBlocks];
  for (int64_t i = 0; i < n;) {
    const int64_t offset = (col + i) % block, count = std::min(n - i, kBlocks * block - offset);
    decode_row(type_.scale.element, m.scale, scale_index(type_.scale, row, col + i, m.cols),
               divide_up(offset + count, block), scales);
    scale_in_blocks(out + i, count, scales, block, offset, round_);
    i += count;
  }
}

template <class T>
void NumberReader::read_panel_as(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, T* out) const {
  // Numbers of a row that lie together, a group of columns, are as many words, which share a factor.
  constexpr int64_t kWords = sizeof(T) == sizeof(float) ? 1 : 2, kNumbers = sizeof(float) / sizeof(T);
  const int64_t group = kWords * kNumbers, block = type_.scale.block;
  decode_codes(m.codes, first, kPanelRows * round_up(n, group), out);
  if (!has_block_scales(type_)) return;
  const int64_t blocks_of_row = divide_up(m.cols, block);
  float scales[kBlocks][kPanelRows], factors[kPanelRows * kWords];
  T* at = out;
  for (int64_t i = 0; i < n;) {
    const int64_t offset = (col + i) % block, many = std::min(n - i, kBlocks * block - offset),
                  blocks = divide_up(offset + many, block);
    decode_row(type_.scale.element, m.scale,
               layout_index(Layout::kPanels16, row, (col + i) / block, row + kPanelRows, blocks_of_row),
               kPanelRows * blocks, scales[0]);
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t r = 0; r < kPanelRows; ++r) {
        for (int64_t word = 0; word < kWords; ++word) factors[r * kWords + word] = scales[b][r];
      }
      const int64_t count = round_up(std::min(n - i, block - (col + i) % block), group);
      scale_panel(at, kPanelRows * count / kNumbers, factors, kPanelRows * kWords, round_);
      at += kPanelRows * count;
      i += count;
    }
  }
}

void NumberReader::read_row(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, void* out) const {
  if (to_ == Element::f32) return read_row_as(m, first, row, col, n, static_cast<float*>(out));
  read_row_as(m, first, row, col, n, static_cast<uint16_t*>(out));
}

void NumberReader::read_panel(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, void* out) const {
  if (to_ == Element::f32) return read_panel_as(m, first, row, col, n, static_cast<float*>(out));
  read_panel_as(m, first, row, col, n, static_cast<uint16_t*>(out));
}

}  // namespace tessera
#endif
