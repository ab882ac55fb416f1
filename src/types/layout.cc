// SPDX-License-Identifier: Apache-2.0
#include "types/layout.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "types/codes.h"
#include "types/nibble_tiles.h"
#include "types/sparse24.h"
#include "types/sparse24_tiles.h"

namespace tessera {
namespace {

constexpr int64_t kPanelRows = 128;  // rows that share no byte with others in any order

// move(index in rows, index in the order) for every code, on all threads.
template <class Move>
void for_each_code(Layout layout, int bits, int64_t rows, int64_t cols, const Move& move) {
  // Halves begin anywhere.
  const int64_t together = bits >= 8 || layout != Layout::kHalves32 ? kPanelRows : std::max<int64_t>(rows, 1);
  parallel_for(divide_up(rows, together), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin * together; r < std::min(rows, end * together); ++r) {
      for (int64_t c = 0; c < cols; ++c) move(r * cols + c, layout_index(layout, r, c, rows, cols));
    }
  });
}

}  // namespace

std::string name_of(const OperandLayout& layout) {
  return layout.scales == Layout::kRows ? name_of(layout.codes)
                                        : cat(name_of(layout.codes), ", scales ", name_of(layout.scales));
}

int64_t stored_bytes(Layout layout, Element element, int64_t rows, int64_t cols) {
  if (is_order(layout)) return packed_bytes(element, layout_elements(layout, rows, cols));
  if (is_nibbles(layout)) return NibbleTiles::bytes(rows, cols);
  if (layout == Layout::kSparse24Tiles) return Sparse24Tiles::bytes(info(element).bits, rows, cols);
  return packed_bytes(element, rows * kept24_cols(cols)) + rows * meta24_row_bytes(cols);
}

Result<Buffer> arrange_codes(Layout layout, Element element, int64_t rows, int64_t cols, const void* codes) {
  Buffer out(static_cast<size_t>(stored_bytes(layout, element, rows, cols)));
  if (out.size() == 0) return out;
  if (is_nibbles(layout)) return tile_nibbles(nibble_operand_bits(layout), codes, rows, cols);
  if (!is_order(layout)) {
    TS_ASSIGN(const Sparse24 sparse, compress24(element, codes, rows, cols));
    if (layout == Layout::kSparse24Tiles) return tile24(sparse, info(element).bits, rows, cols);
    std::memcpy(out.data(), sparse.kept.data(), sparse.kept.size());
    std::memcpy(out.data() + sparse.kept.size(), sparse.metadata.data(), sparse.metadata.size());
    return out;
  }
  const int bits = info(element).bits;
  for_each_code(layout, bits, rows, cols,
                [&](int64_t from, int64_t to) { set_code(out.data(), bits, to, code_at(codes, bits, from)); });
  return out;
}

Buffer restore_rows(Layout layout, Element element, int64_t rows, int64_t cols, const void* stored) {
  Buffer out(static_cast<size_t>(packed_bytes(element, rows * cols)));
  const int bits = info(element).bits;
  if (is_order(layout)) {
    for_each_code(layout, bits, rows, cols,
                  [&](int64_t to, int64_t from) { set_code(out.data(), bits, to, code_at(stored, bits, from)); });
  } else if (is_nibbles(layout)) {
    return untile_nibbles(nibble_operand_bits(layout), stored, rows, cols);
  } else if (layout == Layout::kSparse24Tiles) {
    const Sparse24 sparse = untile24(stored, bits, rows, cols);
    expand24(element, sparse.kept.data(), sparse.metadata.data(), rows, cols, out.data());
  } else {
    expand24(element, stored, metadata24_of(stored, element, rows, cols), rows, cols, out.data());
  }
  return out;
}

}  // namespace tessera
