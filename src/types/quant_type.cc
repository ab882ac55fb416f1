// SPDX-License-Identifier: Apache-2.0
#include "types/quant_type.h"

#include <charconv>

namespace tessera {
namespace {

std::string print_level(const ScaleLevel& level) {
  std::string out = ":";
  switch (level.granularity) {
    case Granularity::kNone:
      return "";
    case Granularity::kTensor:
      out += "tensor";
      break;
    case Granularity::kChannel:
      out += "channel";
      break;
    case Granularity::kToken:
      out += "token";
      break;
    case Granularity::kBlock:
      out += "block" + std::to_string(level.block);
      break;
  }
  out += std::string("(") + info(level.element).name;
  if (level.rule != PowerRule::kRceil) out += std::string(",") + name_of(level.rule);
  return out + ")";
}

std::optional<ScaleLevel> parse_level(std::string_view text) {
  const size_t open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')') return std::nullopt;
  const std::string_view name = text.substr(0, open);
  const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  const size_t comma = inside.find(',');
  const auto element = find_element(inside.substr(0, comma));
  if (!element) return std::nullopt;
  ScaleLevel level{.element = *element};
  if (comma != std::string_view::npos) {
    const auto rule = find_power_rule(inside.substr(comma + 1));
    if (!rule || !is_power(*element)) return std::nullopt;
    level.rule = *rule;
  }
  if (name == "tensor") {
    level.granularity = Granularity::kTensor;
  } else if (name == "channel") {
    level.granularity = Granularity::kChannel;
  } else if (name == "token") {
    level.granularity = Granularity::kToken;
  } else if (name.starts_with("block")) {
    level.granularity = Granularity::kBlock;
    const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), level.block);
    if (error != std::errc() || end != name.data() + name.size() || level.block < 1) return std::nullopt;
  } else {
    return std::nullopt;
  }
  return level;
}

// The element of `as(element)`.
std::optional<Element> parse_product(std::string_view text) {
  if (!text.starts_with("as(") || text.back() != ')') return std::nullopt;
  return find_element(text.substr(3, text.size() - 4));
}

}  // namespace

std::string to_string(const QuantType& type) {
  std::string out = info(type.element).name + print_level(type.scale) + print_level(type.scale2);
  if (type.product) out += std::string(":as(") + info(*type.product).name + ")";
  return out + (type.dynamic ? "!" : "");
}

std::optional<QuantType> parse_quant_type(std::string_view text) {
  QuantType type;
  if (!text.empty() && text.back() == '!') {
    type.dynamic = true;
    text.remove_suffix(1);
  }
  const size_t colon = text.find(':');
  const auto element = find_element(text.substr(0, colon));
  if (!element) return std::nullopt;
  type.element = *element;
  for (size_t at = colon; at != std::string_view::npos;) {
    const size_t next = text.find(':', at + 1);
    const std::string_view piece = text.substr(at + 1, next == std::string_view::npos ? next : next - at - 1);
    at = next;
    if (piece.starts_with("as(")) {
      type.product = parse_product(piece);
      const bool last = next == std::string_view::npos;
      if (!type.product || !last || type.scale.granularity != Granularity::kBlock) return std::nullopt;
      continue;
    }
    const auto level = parse_level(piece);
    if (!level || type.scale2.granularity != Granularity::kNone) return std::nullopt;  // the latter: a third level
    (type.scaled() ? type.scale2 : type.scale) = *level;
  }
  if (type.dynamic && !type.scaled()) return std::nullopt;
  return type;
}

int64_t scale_count(const ScaleLevel& level, int64_t rows, int64_t cols) {
  switch (level.granularity) {
    case Granularity::kNone:
      return 0;
    case Granularity::kTensor:
      return 1;
    case Granularity::kChannel:
    case Granularity::kToken:
      return rows;
    case Granularity::kBlock:
      return rows * ((cols + level.block - 1) / level.block);
  }
  return 0;
}

float scale_for_amax(Element element, float amax) {
  const float scale = amax / static_cast<float>(info(element).max);
  return scale == 0 ? 1.0f : scale;
}

}  // namespace tessera
