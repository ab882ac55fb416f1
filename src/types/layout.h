// SPDX-License-Identifier: Apache-2.0
// Storage orders of a matrix of `rows` x `cols` codes or block scales: a weight [outputs, inputs] and its scales are
// prepacked into these at build. Each order is a function (row, col) -> element index, so that anyone (the reference
// included) can read a packed weight back.
//   rows        r * cols + c
//   panels16    panels of 16 rows, inside a panel column by column: the 16 rows of one column are adjacent (what an
//               outer-product kernel reads)
//   panels16x4  panels of 16 rows, inside a panel groups of 4 columns, inside a group row by row: what instructions
//               read that multiply along k
//   panels16x8  the same with groups of 8 columns (int8)
//   pairs32     rows, those of each 32 in the order of turn_pairs32
//   halves32    two halves of as many rows, each in the order of pairs32: the halves of a gate
//   tiles128x4  tiles of 128 rows x 4 columns, tiles along a row first; in a tile 16 (r % 32) + 4 (r / 32) + c. So
//               tcgen05.mma and cuBLASLt read block scales
//   sparse24    no order: the codes that 2:4 sparsity keeps, [rows, 2 * groups], then its metadata (sparse24.h)
//   sparse24tiles  no order either: the same in the tiles that Hopper's sparse wgmma reads (sparse24_tiles.h)
//   nibbles16, nibbles8  codes of 4 bits in tiles from which Hopper makes 16-bit and 8-bit operands of wgmma in
//               registers; a code's bits lie apart (nibble_tiles.h)
//   tiles32x8   the block scales beside them: tiles of 32 rows x 8 columns, tiles along a row first; in a tile row by
//               row, rows in the order of turn_pairs32
// Rows that are missing in the last panel and columns that are missing in the last group hold zero codes. Codes
// of 4 bits lie two in a byte in every order.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/status.h"
#include "types/element.h"
#include "types/small_float.h"

namespace tessera {

enum class Layout : uint8_t {
  kRows,
  kPanels16,
  kPanels16x4,
  kPanels16x8,
  kPairs32,
  kHalves32,
  kTiles128x4,
  kSparse24,
  kSparse24Tiles,
  kNibbles16,
  kNibbles8,
  kTiles32x8
};
struct LayoutInfo {
  const char* name;
  int64_t rows, cols;  // that are kept together, and padded to
};
inline constexpr LayoutInfo kLayoutInfos[] = {{"rows", 1, 1},         {"panels16", 16, 1},   {"panels16x4", 16, 4},
                                              {"panels16x8", 16, 8},  {"pairs32", 32, 1},    {"halves32", 64, 1},
                                              {"tiles128x4", 128, 4}, {"sparse24", 1, 4},    {"sparse24tiles", 128, 4},
                                              {"nibbles16", 32, 128}, {"nibbles8", 32, 128}, {"tiles32x8", 32, 8}};
constexpr const LayoutInfo& info(Layout layout) { return kLayoutInfos[static_cast<size_t>(layout)]; }
inline constexpr Layout kLayouts[] = {Layout::kRows,       Layout::kPanels16, Layout::kPanels16x4,
                                      Layout::kPanels16x8, Layout::kPairs32,  Layout::kHalves32,
                                      Layout::kTiles128x4, Layout::kSparse24, Layout::kSparse24Tiles,
                                      Layout::kNibbles16,  Layout::kNibbles8, Layout::kTiles32x8};

constexpr const char* name_of(Layout layout) { return info(layout).name; }
constexpr std::optional<Layout> find_layout(std::string_view name) {
  for (Layout l : kLayouts) {
    if (name == name_of(l)) return l;
  }
  return std::nullopt;
}

// What is stored of a 2:4 sparse matrix: codes that are not zero, and where they were.
constexpr bool is_sparse24(Layout layout) { return layout == Layout::kSparse24 || layout == Layout::kSparse24Tiles; }
// 4-bit codes whose bits lie apart.
constexpr bool is_nibbles(Layout layout) { return layout == Layout::kNibbles16 || layout == Layout::kNibbles8; }
// Whether codes of so many bits can lie so.
constexpr bool takes_bits(Layout layout, int bits) {
  return is_nibbles(layout) ? bits == 4 : layout != Layout::kSparse24Tiles || bits == 8 || bits == 16;
}
// Whether every code is stored, each at its layout_index.
constexpr bool is_order(Layout layout) { return !is_sparse24(layout) && !is_nibbles(layout); }

// Columns that are kept together. Contract of this and the next two: is_order(layout).
constexpr int64_t layout_group(Layout layout) { return info(layout).cols; }

// Where pairs32 puts a row, and which row it has at a place: the same function. Rows 8 b + 2 a and 8 b + 2 a + 1 lie
// where 8 a + 2 b and 8 a + 2 b + 1 would (a, b < 4): a matrix product whose results lie in pairs of columns over four
// threads (wgmma) then gives each thread eight neighbouring ones.
TS_HOST_DEVICE constexpr int turn_pairs32(int row) { return (row & ~0x1e) | (row & 0x06) << 2 | (row & 0x18) >> 2; }

// Rows of pairs32 and halves32 as they are stored. (An odd row of two halves counts as the first one's.)
constexpr int64_t stored_rows32(Layout layout, int64_t rows) {
  return layout == Layout::kPairs32 ? (rows + 31) / 32 * 32 : ((rows + 1) / 2 + 31) / 32 * 64;
}
constexpr bool keeps_rows32(Layout layout) { return layout == Layout::kPairs32 || layout == Layout::kHalves32; }

constexpr int64_t layout_elements(Layout layout, int64_t rows, int64_t cols) {
  const int64_t group = layout_group(layout);
  if (keeps_rows32(layout)) return stored_rows32(layout, rows) * cols;
  if (layout == Layout::kRows) return rows * cols;
  const int64_t panel = info(layout).rows;
  return (rows + panel - 1) / panel * panel * ((cols + group - 1) / group * group);
}

// `rows`: of the whole matrix.
constexpr int64_t layout_index(Layout layout, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  if (layout == Layout::kRows) return row * cols + col;
  if (keeps_rows32(layout)) {
    const int64_t half = layout == Layout::kHalves32 ? (rows + 1) / 2 : rows, second = row >= half ? 1 : 0,
                  own = row - second * half;
    return (second * stored_rows32(layout, rows) / 2 + own / 32 * 32 + turn_pairs32(static_cast<int>(own % 32))) *
               cols +
           col;
  }
  const int64_t group = layout_group(layout), groups = (cols + group - 1) / group;
  if (layout == Layout::kTiles128x4)
    return (row / 128 * groups + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
  if (layout == Layout::kTiles32x8)
    return (row / 32 * groups + col / 8) * 256 + turn_pairs32(static_cast<int>(row % 32)) * 8 + col % 8;
  return ((row / 16 * groups + col / group) * 16 + row % 16) * group + col % group;
}

// How an operand is stored: its codes, and the first level of its scales where that covers blocks, a matrix [rows,
// blocks of a row]. Other scales lie in rows.
struct OperandLayout {
  Layout codes = Layout::kRows, scales = Layout::kRows;
  constexpr OperandLayout(Layout of_codes = Layout::kRows, Layout of_scales = Layout::kRows)
      : codes(of_codes), scales(of_scales) {}
  auto operator<=>(const OperandLayout&) const = default;
};
// "panels16", or "rows, scales tiles128x4".
std::string name_of(const OperandLayout& layout);

// Bytes of a matrix in any layout.
int64_t stored_bytes(Layout layout, Element element, int64_t rows, int64_t cols);
// Dense rows of codes brought into a layout, and back. Fails only for a matrix that is not 2:4 sparse where that is
// asked. Contract of all three: takes_bits.
Result<Buffer> arrange_codes(Layout layout, Element element, int64_t rows, int64_t cols, const void* codes);
Buffer restore_rows(Layout layout, Element element, int64_t rows, int64_t cols, const void* stored);

}  // namespace tessera
