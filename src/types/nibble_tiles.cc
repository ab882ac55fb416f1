// SPDX-License-Identifier: Apache-2.0
#include "types/nibble_tiles.h"

#include <cstring>

#include "base/parallel.h"
#include "types/codes.h"

namespace tessera {
namespace {

using Tiles = NibbleTiles;

// move(index in dense rows, place of the word in the stored bytes, code) for every code of a tile that exists.
template <class Move>
void walk_tile(int bits, int64_t row_tile, int64_t k_tile, int64_t rows, int64_t cols, const Move& move) {
  const int64_t tile = (row_tile * Tiles::tiles_of_k(cols) + k_tile) * Tiles::kTileBytes;
  for (int thread = 0; thread < Tiles::kThreads; ++thread) {
    for (int word = 0; word < Tiles::kWords; ++word) {
      for (int number = 0; number < 8; ++number) {
        const Tiles::Code c = Tiles::code(bits, thread, word, number);
        const int64_t row = row_tile * Tiles::kRows + c.row, col = k_tile * Tiles::kCols + c.col;
        if (row < rows && col < cols) move(row * cols + col, tile + Tiles::word_byte(thread, word), c);
      }
    }
  }
}

}  // namespace

Buffer tile_nibbles(int bits, const void* codes, int64_t rows, int64_t cols) {
  const int64_t k_tiles = Tiles::tiles_of_k(cols);
  Buffer out(static_cast<size_t>(Tiles::bytes(rows, cols)));
  parallel_for(Tiles::tiles_of_rows(rows) * k_tiles, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      walk_tile(bits, i / k_tiles, i % k_tiles, rows, cols, [&](int64_t from, int64_t to, const Tiles::Code& c) {
        const auto code = static_cast<uint32_t>(code_at(codes, 4, from));
        uint32_t word;
        std::memcpy(&word, out.data() + to, 4);
        word |= (code & 7) << c.magnitude | code >> 3 << c.sign;
        std::memcpy(out.data() + to, &word, 4);
      });
    }
  });
  return out;
}

Buffer untile_nibbles(int bits, const void* stored, int64_t rows, int64_t cols) {
  const int64_t k_tiles = Tiles::tiles_of_k(cols), row_tiles = Tiles::tiles_of_rows(rows);
  const auto* from = static_cast<const uint8_t*>(stored);
  Buffer out(static_cast<size_t>((rows * cols + 1) / 2));
  // 32 rows share no byte with others.
  parallel_for(row_tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * k_tiles; i < end * k_tiles; ++i) {
      walk_tile(bits, i / k_tiles, i % k_tiles, rows, cols, [&](int64_t to, int64_t at, const Tiles::Code& c) {
        uint32_t word;
        std::memcpy(&word, from + at, 4);
        set_code(out.data(), 4, to, (word >> c.magnitude & 7) | (word >> c.sign & 1) << 3);
      });
    }
  });
  return out;
}

}  // namespace tessera
