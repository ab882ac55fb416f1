// SPDX-License-Identifier: Apache-2.0
// QuantType: an element and up to two levels of scales; every numeric format of the product is data of this form.
//   value = decode(code) * scale[group] * scale2[group2]        group: what one scale covers
// Written as text: `f16`, `e4m3:tensor(f32)`, `e2m1:block16(e4m3):tensor(f32)`, `e4m3:token(f32)!` (! = scales made
// while running). A channel is an output row of a weight (its first axis), a token a row of an activation; blocks run
// along the last axis.
//   block32(e8m0,floor)   scales that are powers of two are made by a named rule; without a name: rceil
//   ...:as(e4m3)          code * scale is rounded once more, to an e4m3, before it is multiplied
// How scales and codes are made from numbers: quantize_array.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "types/element.h"
#include "types/power_rule.h"

namespace tessera {

enum class Granularity : uint8_t { kNone, kTensor, kChannel, kToken, kBlock };

struct ScaleLevel {
  Granularity granularity = Granularity::kNone;
  Element element = Element::f32;
  int32_t block = 0;                   // kBlock: elements along the last axis that share a scale
  PowerRule rule = PowerRule::kRceil;  // where the element is one of powers of two
  bool operator==(const ScaleLevel&) const = default;
};

struct QuantType {
  Element element = Element::f32;
  ScaleLevel scale, scale2;
  bool dynamic = false;            // scales are computed by the producer while running
  std::optional<Element> product;  // over block scales: what code * scale is rounded to before it is multiplied

  QuantType() = default;
  QuantType(Element e) : element(e) {}  // NOLINT: a plain element is a type without scales
  QuantType(Element e, ScaleLevel s, ScaleLevel s2 = {}, bool made_while_running = false,
            std::optional<Element> rounded_to = {})
      : element(e), scale(s), scale2(s2), dynamic(made_while_running), product(rounded_to) {}
  bool operator==(const QuantType&) const = default;
  bool scaled() const { return scale.granularity != Granularity::kNone; }
};

std::string to_string(const QuantType& type);
std::optional<QuantType> parse_quant_type(std::string_view text);

// Number of scales of one level for a tensor of `rows` x `cols` (leading axes flattened into rows).
int64_t scale_count(const ScaleLevel& level, int64_t rows, int64_t cols);
// Which scale of the level covers element (row, col).
inline int64_t scale_index(const ScaleLevel& level, int64_t row, int64_t col, int64_t cols) {
  switch (level.granularity) {
    case Granularity::kNone:
    case Granularity::kTensor:
      return 0;
    case Granularity::kChannel:
    case Granularity::kToken:
      return row;
    case Granularity::kBlock:
      return row * ((cols + level.block - 1) / level.block) + col / level.block;
  }
  return 0;
}

inline const QuantType kE4m3PerTensor{Element::e4m3, {Granularity::kTensor, Element::f32}};
inline const QuantType kE4m3PerChannel{Element::e4m3, {Granularity::kChannel, Element::f32}};
inline const QuantType kE4m3PerToken{Element::e4m3, {Granularity::kToken, Element::f32}, {}, true};
inline const QuantType kInt8PerTensor{Element::i8, {Granularity::kTensor, Element::f32}};
inline const QuantType kInt8PerChannel{Element::i8, {Granularity::kChannel, Element::f32}};
inline const QuantType kMxfp8{Element::e4m3, {Granularity::kBlock, Element::e8m0, 32}};
inline const QuantType kNvfp4{
    Element::e2m1, {Granularity::kBlock, Element::e4m3, 16}, {Granularity::kTensor, Element::f32}};
// nvfp4 whose products with e4m3 are e4m3 products (w4a8).
inline const QuantType kNvfp4AsE4m3{kNvfp4.element, kNvfp4.scale, kNvfp4.scale2, false, Element::e4m3};

// The same type with a first level of scales that the producer computes while running.
inline QuantType made_while_running(QuantType type) {
  type.dynamic = true;
  return type;
}

// Numbers without sign and zero that only serve as scales: every one is a power of two.
inline bool is_power(Element e) { return info(e).kind == ElementKind::kFloat && info(e).mantissa_bits == 0; }

// The static scale that maps amax to the element's largest number; 1 where that would be zero. NaN and Inf stay.
float scale_for_amax(Element element, float amax);

}  // namespace tessera
