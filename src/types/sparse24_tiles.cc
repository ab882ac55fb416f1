// SPDX-License-Identifier: Apache-2.0
#include "types/sparse24_tiles.h"

#include <algorithm>

#include "base/parallel.h"

namespace tessera {
namespace {

using Tiles = Sparse24Tiles;

// Every place of a tile: code(row, index among the row's kept bytes, place in the stored bytes), group(row, group,
// place in the stored bytes, shift in that byte).
template <class Code, class Group>
void walk_tile(int bits, int64_t row_tile, int64_t k_tile, int64_t k_tiles, const Code& code, const Group& group) {
  const int64_t tile = (row_tile * k_tiles + k_tile) * Tiles::kTileBytes;
  const int groups = bits == 8 ? 16 : 8;  // of a row in an instruction
  for (int part = 0; part < 4; ++part) {
    const int t = part / 2;
    const int64_t instruction = k_tile * 2 + part % 2;  // along k
    for (int thread = 0; thread < Tiles::kThreads; ++thread) {
      const auto row_of = [&](int upper) { return row_tile * Tiles::kRows + Tiles::row(thread, t, upper); };
      for (int b = 0; b < 16; ++b) {
        const Tiles::Kept kept = Tiles::kept(thread, b);
        code(row_of(kept.upper), instruction * 32 + kept.byte, tile + part * Tiles::kPlaneBytes + thread * 16 + b);
      }
      for (int nibble = 0; nibble < 8; ++nibble) {
        const Tiles::Meta meta = Tiles::meta(thread, bits, nibble);
        group(row_of(meta.upper), instruction * groups + meta.first,
              tile + 4 * Tiles::kPlaneBytes + thread * 16 + part * 4 + nibble / 2, nibble % 2 * 4);
      }
    }
  }
}

}  // namespace

Buffer tile24(const Sparse24& sparse, int bits, int64_t rows, int64_t cols) {
  const int64_t k_tiles = Tiles::tiles_of_k(bits, cols), kept_bytes = kept24_cols(cols) * bits / 8;
  Buffer out(static_cast<size_t>(Tiles::bytes(bits, rows, cols)));
  parallel_for(Tiles::tiles_of_rows(rows) * k_tiles, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      walk_tile(
          bits, i / k_tiles, i % k_tiles, k_tiles,
          [&](int64_t row, int64_t byte, int64_t to) {
            if (row < rows && byte < kept_bytes)
              out.data()[to] = sparse.kept.data()[static_cast<size_t>(row * kept_bytes + byte)];
          },
          [&](int64_t row, int64_t group, int64_t to, int shift) {
            uint32_t metadata = metadata24(0);
            if (row < rows && group < groups24(cols))
              metadata = sparse.metadata.data()[meta24_byte(row, group, cols)] >> meta24_shift(group) & 15u;
            out.data()[to] |= static_cast<uint8_t>(metadata << shift);
          });
    }
  });
  return out;
}

Sparse24 untile24(const void* stored, int bits, int64_t rows, int64_t cols) {
  const int64_t k_tiles = Tiles::tiles_of_k(bits, cols), kept_bytes = kept24_cols(cols) * bits / 8;
  const auto* from = static_cast<const uint8_t*>(stored);
  Sparse24 out{Buffer(static_cast<size_t>(rows * kept_bytes)),
               Buffer(static_cast<size_t>(rows * meta24_row_bytes(cols)))};
  // Groups of one byte lie in one tile.
  parallel_for(Tiles::tiles_of_rows(rows) * k_tiles, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      walk_tile(
          bits, i / k_tiles, i % k_tiles, k_tiles,
          [&](int64_t row, int64_t byte, int64_t at) {
            if (row < rows && byte < kept_bytes) out.kept.data()[row * kept_bytes + byte] = from[at];
          },
          [&](int64_t row, int64_t group, int64_t at, int shift) {
            if (row >= rows || group >= 2 * meta24_row_bytes(cols)) return;
            uint8_t& to = out.metadata.data()[meta24_byte(row, group, cols)];
            const int own = meta24_shift(group);
            to = static_cast<uint8_t>((to & ~(15 << own)) | (from[at] >> shift & 15) << own);
          });
    }
  });
  return out;
}

}  // namespace tessera
