// SPDX-License-Identifier: Apache-2.0
// QuantType: an element and up to two levels of scales; every numeric format of the product is data of this form.
//   value = decode(code) * scale[group] * scale2[group2]        group: what one scale covers
// Written as text: `f16`, `e4m3:tensor(f32)`, `e4m3:channel(f32)`, `e2m1:block16(e4m3):tensor(f32)`, `e4m3:token(f32)!` (! = scales made while running).
// A channel is an output row of a weight (its first axis), a token a row of an activation; blocks run along the last axis.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "types/element.h"

namespace tessera {

enum class Granularity : uint8_t { kNone, kTensor, kChannel, kToken, kBlock };

struct ScaleLevel {
  Granularity granularity = Granularity::kNone;
  Element element = Element::f32;
  int32_t block = 0;  // kBlock: elements along the last axis that share a scale
  bool operator==(const ScaleLevel&) const = default;
};

struct QuantType {
  Element element = Element::f32;
  ScaleLevel scale, scale2;
  bool dynamic = false;  // scales are computed by the producer while running

  QuantType() = default;
  QuantType(Element e) : element(e) {}  // NOLINT: a plain element is a type without scales
  QuantType(Element e, ScaleLevel s, ScaleLevel s2 = {}, bool made_while_running = false)
      : element(e), scale(s), scale2(s2), dynamic(made_while_running) {}
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
    case Granularity::kTensor: return 0;
    case Granularity::kChannel:
    case Granularity::kToken: return row;
    case Granularity::kBlock: return row * ((cols + level.block - 1) / level.block) + col / level.block;
  }
  return 0;
}

inline const QuantType kE4m3PerTensor{Element::e4m3, {Granularity::kTensor, Element::f32}};
inline const QuantType kE4m3PerChannel{Element::e4m3, {Granularity::kChannel, Element::f32}};

// The static scale that maps amax to the element's largest number; an all-zero tensor gets 1.
float scale_for_amax(Element element, float amax);

}  // namespace tessera
