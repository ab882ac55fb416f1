// SPDX-License-Identifier: Apache-2.0
// Which tiles of a result a block of the normal mainloop (gemm.cuh) takes, and in which order: block b those with
// the numbers b, b + blocks, b + 2 blocks, ... Tiles that run at the same time share rows of x (by_rows: number = row *
// cols + col) or rows of w, whichever is the smaller matrix: the larger one is read from memory once, the smaller one
// stays in the L2. Blocks that keep their rows of w (resident) go by rows, and there are a multiple of `cols` of them:
// number % cols, the column of tiles, is then one and the same for all tiles of a block, also backward. Host and
// device, constexpr: tested on the CPU.
#pragma once

#include <cstdint>

#include "types/small_float.h"

namespace tessera::sm90 {

struct GemmTiles {
  uint32_t rows, cols, count;  // of tiles; count = rows * cols
  uint32_t blocks;             // of the grid
  bool by_rows, backward;

  TS_HOST_DEVICE constexpr uint32_t place(uint32_t number) const { return backward ? count - 1 - number : number; }
  TS_HOST_DEVICE constexpr uint32_t row(uint32_t number) const {
    return by_rows ? place(number) / cols : place(number) % rows;
  }
  TS_HOST_DEVICE constexpr uint32_t col(uint32_t number) const {
    return by_rows ? place(number) % cols : place(number) / rows;
  }
};

// Of K, 128 bytes each: what 192 rows of w may have beside four stages of x in a block's shared memory.
constexpr int kResidentBlocks = 6;

// Blocks of each column of tiles where blocks keep their rows of w: as many as there are SMs for, at least one.
constexpr uint32_t blocks_per_column(uint32_t rows, uint32_t cols, uint32_t sms) {
  const uint32_t most = sms / cols > 1 ? sms / cols : 1;
  return rows < most ? rows : most;
}

// Blocks that may share a tile: beside 192 columns of sums there are registers for what one other block sends.
TS_HOST_DEVICE constexpr int most_split(int tile_cols) { return tile_cols > 128 ? 2 : 4; }
// Tiles whose K is split: a cluster for each.
constexpr GemmTiles share_split_tiles(uint32_t rows, uint32_t cols, bool by_rows, bool backward) {
  return {rows, cols, rows * cols, rows * cols, by_rows, backward};
}

// Contract: rows, cols and SMs are at least 1.
constexpr GemmTiles share_tiles(uint32_t rows, uint32_t cols, uint32_t sms, bool by_rows, bool backward) {
  const uint32_t count = rows * cols;
  return {rows, cols, count, sms < count ? sms : count, by_rows, backward};
}
constexpr GemmTiles share_resident_tiles(uint32_t rows, uint32_t cols, uint32_t sms, bool backward) {
  return {rows, cols, rows * cols, cols * blocks_per_column(rows, cols, sms), /*by_rows=*/true, backward};
}

}  // namespace tessera::sm90
