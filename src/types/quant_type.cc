// SPDX-License-Identifier: Apache-2.0
#include "types/quant_type.h"

#include <charconv>

namespace tessera {
namespace {

std::string print_level(const ScaleLevel& level) {
  std::string out = ":";
  switch (level.granularity) {
    case Granularity::kNone: return "";
    case Granularity::kTensor: out += "tensor"; break;
    case Granularity::kChannel: out += "channel"; break;
    case Granularity::kToken: out += "token"; break;
    case Granularity::kBlock: out += "block" + std::to_string(level.block); break;
  }
  return out + "(" + info(level.element).name + ")";
}

std::optional<ScaleLevel> parse_level(std::string_view text) {
  const size_t open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')') return std::nullopt;
  const std::string_view name = text.substr(0, open);
  const auto element = find_element(text.substr(open + 1, text.size() - open - 2));
  if (!element) return std::nullopt;
  ScaleLevel level{.element = *element};
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

}  // namespace

std::string to_string(const QuantType& type) {
  return std::string(info(type.element).name) + print_level(type.scale) + print_level(type.scale2) + (type.dynamic ? "!" : "");
}

std::optional<QuantType> parse_quant_type(std::string_view text) {
  QuantType type;
  if (!text.empty() && text.back() == '!') {
    type.dynamic = true;
    text.remove_suffix(1);
  }
  for (int part = 0; part < 3; ++part) {
    const size_t colon = text.find(':');
    const std::string_view piece = text.substr(0, colon);
    if (part == 0) {
      const auto element = find_element(piece);
      if (!element) return std::nullopt;
      type.element = *element;
    } else {
      const auto level = parse_level(piece);
      if (!level) return std::nullopt;
      (part == 1 ? type.scale : type.scale2) = *level;
    }
    if (colon == std::string_view::npos) {
      if (type.dynamic && !type.scaled()) return std::nullopt;
      return type;
    }
    text.remove_prefix(colon + 1);
  }
  return std::nullopt;  // a third level
}

int64_t scale_count(const ScaleLevel& level, int64_t rows, int64_t cols) {
  switch (level.granularity) {
    case Granularity::kNone: return 0;
    case Granularity::kTensor: return 1;
    case Granularity::kChannel:
    case Granularity::kToken: return rows;
    case Granularity::kBlock: return rows * ((cols + level.block - 1) / level.block);
  }
  return 0;
}

float scale_for_amax(Element element, float amax) {
  return amax > 0 ? amax / static_cast<float>(info(element).max) : 1.0f;
}

}  // namespace tessera
