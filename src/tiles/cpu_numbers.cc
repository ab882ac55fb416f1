// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu_numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tiles/cpu_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu_numbers.cc"
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

// Words of 32 bits: a number of f32, or two neighbouring ones of bf16, both under the word's factor. The product of bf16 numbers is taken in f32, of
// which bf16 holds the upper half exactly.
HWY_INLINE void multiply_words(float* v, hn::Vec<D> factor) { hn::StoreU(hn::Mul(hn::LoadU(D(), v), factor), D(), v); }
HWY_INLINE void multiply_words(uint16_t* v, hn::Vec<D> factor) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<uint16_t, D> d16;
  const auto words = hn::BitCast(du, hn::LoadU(d16, v)), upper = hn::Set(du, 0xffff0000u);
  const auto first = hn::BitCast(du, hn::Mul(hn::BitCast(d, hn::ShiftLeft<16>(words)), factor));
  const auto second = hn::BitCast(du, hn::Mul(hn::BitCast(d, hn::And(words, upper)), factor));
  hn::StoreU(hn::BitCast(d16, hn::Or(hn::And(second, upper), hn::ShiftRight<16>(first))), d16, v);
}

template <class T>
HWY_INLINE T multiply_one(T v, float factor) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return v * factor;
  } else {
    return static_cast<T>(std::bit_cast<uint32_t>(std::bit_cast<float>(uint32_t{v} << 16) * factor) >> 16);
  }
}

// v[i] *= scales[(i + offset) / block], i < n.
template <class T>
void scale_blocks(T* v, int64_t n, const float* scales, int64_t block, int64_t offset) {
  constexpr int64_t kStep = kLanes * sizeof(float) / sizeof(T);
  for (int64_t i = 0; i < n; ++scales) {
    const int64_t end = std::min(n, i + block - offset);
    offset = 0;
    const auto factor = hn::Set(D(), *scales);
    for (; i + kStep <= end; i += kStep) multiply_words(v + i, factor);
    for (; i < end; ++i) v[i] = multiply_one(v[i], *scales);
  }
}

// Word i of a panel is multiplied by factors[i % period]. Contract: both counts are multiples of 16.
template <class T>
void scale_words(T* v, int64_t words, const float* factors, int64_t period) {
  constexpr int64_t kNumbers = sizeof(float) / sizeof(T);
  for (int64_t i = 0; i < words; i += period) {
    for (int64_t j = 0; j < period; j += kLanes) multiply_words(v + (i + j) * kNumbers, hn::LoadU(D(), factors + j));
  }
}

void scale_blocks_f32(float* v, int64_t n, const float* scales, int64_t block, int64_t offset) { scale_blocks(v, n, scales, block, offset); }
void scale_blocks_bf16(uint16_t* v, int64_t n, const float* scales, int64_t block, int64_t offset) { scale_blocks(v, n, scales, block, offset); }
void scale_words_f32(float* v, int64_t words, const float* factors, int64_t period) { scale_words(v, words, factors, period); }
void scale_words_bf16(uint16_t* v, int64_t words, const float* factors, int64_t period) { scale_words(v, words, factors, period); }

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

void decode_wide(Element e, const void* codes, int64_t first, int64_t n, float* out) {
  is_float_code(e) ? decode_row(e, codes, first, n, out) : info(e).decode(codes, first, n, out);
}

void scale_in_blocks(float* v, int64_t n, const float* scales, int64_t block, int64_t offset) {
  HWY_DYNAMIC_DISPATCH(scale_blocks_f32)(v, n, scales, block, offset);
}
void scale_in_blocks(uint16_t* v, int64_t n, const float* scales, int64_t block, int64_t offset) {
  HWY_DYNAMIC_DISPATCH(scale_blocks_bf16)(v, n, scales, block, offset);
}
void scale_panel(float* v, int64_t words, const float* factors, int64_t period) {
  HWY_DYNAMIC_DISPATCH(scale_words_f32)(v, words, factors, period);
}
void scale_panel(uint16_t* v, int64_t words, const float* factors, int64_t period) {
  HWY_DYNAMIC_DISPATCH(scale_words_bf16)(v, words, factors, period);
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

NumberReader::NumberReader(const QuantType& type, Element to) : type_(type), to_(to) {
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
    decode_wide(type_.element, codes, first, n, out);
  } else if (is_exact_in_bf16(type_.element)) {
    decode_row_bf16(type_.element, codes, first, n, out);
  } else {
    float wide[kChunk];
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      decode_wide(type_.element, codes, first + i, count, wide);
      narrow(wide, count, out + i);
    }
  }
}

template <class T>
void NumberReader::round_products(int64_t n, T* v) const {
  if (!type_.product) return;
  const Element e = *type_.product;
  float wide[kChunk];
  alignas(8) uint8_t codes[kChunk * sizeof(double)];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    float* numbers = wide;
    if constexpr (sizeof(T) == sizeof(float)) {
      numbers = v + i;
    } else {
      widen(v + i, count, wide);
    }
    is_float_code(e) ? encode_row(e, numbers, count, 1.0f, codes, 0) : info(e).encode(numbers, count, codes, 0);
    if constexpr (sizeof(T) == sizeof(float)) {
      decode_wide(e, codes, 0, count, numbers);
    } else if (is_exact_in_bf16(e)) {
      decode_row_bf16(e, codes, 0, count, v + i);
    } else {
      decode_wide(e, codes, 0, count, wide);
      narrow(wide, count, v + i);
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
    decode_wide(type_.scale.element, m.scale, scale_index(type_.scale, row, col + i, m.cols), divide_up(offset + count, block), scales);
    scale_in_blocks(out + i, count, scales, block, offset);
    i += count;
  }
  round_products(n, out);
}

template <class T>
void NumberReader::read_panel_as(Layout layout, const Matrix& m, int64_t first, int64_t row, int64_t rows, int64_t col, int64_t n,
                                 T* out) const {
  const int64_t group = layout_group(layout);
  decode_codes(m.codes, first, kPanelRows * round_up(n, group), out);
  if (!has_block_scales(type_)) return;
  // Numbers of a row that lie together: a group of columns, whose words share a factor.
  const int64_t words = group * static_cast<int64_t>(sizeof(T)) / 4, block = type_.scale.block;
  float scales[kPanelRows][kBlocks] = {}, factors[kPanelRows * 4];
  T* at = out;
  for (int64_t i = 0; i < n;) {
    const int64_t offset = (col + i) % block, many = std::min(n - i, kBlocks * block - offset), blocks = divide_up(offset + many, block);
    for (int64_t r = 0; r < rows; ++r)
      decode_wide(type_.scale.element, m.scale, scale_index(type_.scale, row + r, col + i, m.cols), blocks, scales[r]);
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t r = 0; r < kPanelRows; ++r) std::fill_n(factors + r * words, words, scales[r][b]);
      const int64_t count = round_up(std::min(n - i, block - (col + i) % block), group);
      scale_panel(at, kPanelRows * count * static_cast<int64_t>(sizeof(T)) / 4, factors, kPanelRows * words);
      at += kPanelRows * count;
      i += count;
    }
  }
  round_products(kPanelRows * round_up(n, group), out);
}

void NumberReader::read_row(const Matrix& m, int64_t first, int64_t row, int64_t col, int64_t n, void* out) const {
  if (to_ == Element::f32) return read_row_as(m, first, row, col, n, static_cast<float*>(out));
  read_row_as(m, first, row, col, n, static_cast<uint16_t*>(out));
}

void NumberReader::read_panel(Layout layout, const Matrix& m, int64_t first, int64_t row, int64_t rows, int64_t col, int64_t n,
                              void* out) const {
  if (to_ == Element::f32) return read_panel_as(layout, m, first, row, rows, col, n, static_cast<float*>(out));
  read_panel_as(layout, m, first, row, rows, col, n, static_cast<uint16_t*>(out));
}

}  // namespace tessera
#endif
