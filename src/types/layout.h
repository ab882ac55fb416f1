// SPDX-License-Identifier: Apache-2.0
// Storage orders of a matrix of `rows` x `cols` codes beyond plain rows: a weight [outputs, inputs] is brought into one of these at build.
// Each order is a function (row, col) -> element index, so that anyone (the reference included) can read a packed weight back.
//   rows       r * cols + c
//   panels16   panels of 16 rows, inside a panel column by column: the 16 rows of one column are adjacent (what an outer-product kernel reads);
//              the last panel is padded with zero codes
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class Layout : uint8_t { kRows, kPanels16 };

constexpr const char* name_of(Layout layout) { return layout == Layout::kRows ? "rows" : "panels16"; }
constexpr std::optional<Layout> find_layout(std::string_view name) {
  for (Layout l : {Layout::kRows, Layout::kPanels16}) {
    if (name == name_of(l)) return l;
  }
  return std::nullopt;
}

constexpr int64_t layout_elements(Layout layout, int64_t rows, int64_t cols) {
  return layout == Layout::kRows ? rows * cols : (rows + 15) / 16 * 16 * cols;
}

constexpr int64_t layout_index(Layout layout, int64_t row, int64_t col, int64_t cols) {
  return layout == Layout::kRows ? row * cols + col : (row / 16 * cols + col) * 16 + row % 16;
}

}  // namespace tessera
