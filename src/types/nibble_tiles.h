// SPDX-License-Identifier: Apache-2.0
// 4-bit codes as Hopper expands them in registers on their way to wgmma, whose left operand they become (Layout::
// kNibbles16: of 16-bit numbers, kNibbles8: of 8-bit ones). A tile is 32 rows of w by 128 of k, tiles of the same rows
// follow one another along k. A tile serves two warps: each of their 64 threads has eight words of eight codes, word b
// those of its two rows in columns 16 b ... 16 b + 15; words lie in two planes of 16 bytes per thread. A thread's rows
// are what wgmma gives it, result_row and 8 more, of rows in the order of turn_pairs32. A code is a sign (its highest
// bit) and three bits; in a word these lie where few instructions bring them to their places in an operand:
//   16  a register of two codes is made by masks 0x8000 (sign) and 0x0e00 of each half: registers 0 and 1 by one shift
//       each (0 and 3), registers 2 and 3 by one for the three bits (6 and 9) and one for the sign (1 and 2)
//   8   the three bits are selectors of a byte permutation, four of the thread's lower row in the low half of the word,
//       four of the upper one in the high half; signs lie at bits 8 j + 7 and 8 j + 3
// Missing rows and columns hold zero codes. Host and device, constexpr: tested on the CPU.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "types/layout.h"
#include "types/small_float.h"

namespace tessera {

// Bits of a number of the operand that codes become.
constexpr int nibble_operand_bits(Layout layout) { return layout == Layout::kNibbles16 ? 16 : 8; }

struct NibbleTiles {
  static constexpr int kRows = 32, kCols = 128;  // of a tile
  static constexpr int kThreads = 64, kWords = 8, kPlaneBytes = kThreads * 16, kTileBytes = 2 * kPlaneBytes;

  TS_HOST_DEVICE static constexpr int word_byte(int thread, int word) {
    return word / 4 * kPlaneBytes + thread * 16 + word % 4 * 4;
  }

  // Which number of a tile a code is, the row as the matrix counts it, and where its bits begin in its word.
  struct Code {
    int row, col, magnitude, sign;
  };
  TS_HOST_DEVICE static constexpr Code code(int bits, int thread, int word, int number) {
    const int lane = thread % 32, place = thread / 32 * 16 + lane / 4;
    if (bits == 16) {
      constexpr int kSigns[] = {15, 12, 14, 13};
      const int reg = number / 2, half = number % 2;
      return {turn_pairs32(place + reg % 2 * 8), word * 16 + reg / 2 * 8 + lane % 4 * 2 + half, half * 16 + 9 - 3 * reg,
              half * 16 + kSigns[reg]};
    }
    const int upper = number / 4, byte = number % 4;
    return {turn_pairs32(place + upper * 8), word * 16 + lane % 4 * 4 + byte, number * 4, byte * 8 + (upper ? 3 : 7)};
  }

  // 16-bit operands: e2m1 codes of a register as f16 of 2^-14 times their numbers.
  TS_HOST_DEVICE static constexpr uint32_t halves(uint32_t word, int reg) {
    if (reg == 0) return word & 0x8e008e00u;
    if (reg == 1) return word << 3 & 0x8e008e00u;
    if (reg == 2) return (word << 1 & 0x80008000u) | (word << 6 & 0x0e000e00u);
    return (word << 2 & 0x80008000u) | (word << 9 & 0x0e000e00u);
  }
  // 8-bit operands: selectors of four bytes, in the lowest four nibbles, and the bytes' signs.
  TS_HOST_DEVICE static constexpr uint32_t selectors(uint32_t word, int upper) {
    return (word & 0x77777777u) >> (upper ? 16 : 0);
  }
  TS_HOST_DEVICE static constexpr uint32_t signs(uint32_t word, int upper) {
    return (upper ? word << 4 : word) & 0x80808080u;
  }

  TS_HOST_DEVICE static constexpr int64_t tiles_of_rows(int64_t rows) { return (rows + kRows - 1) / kRows; }
  TS_HOST_DEVICE static constexpr int64_t tiles_of_k(int64_t cols) { return (cols + kCols - 1) / kCols; }
  TS_HOST_DEVICE static constexpr int64_t bytes(int64_t rows, int64_t cols) {
    return tiles_of_rows(rows) * tiles_of_k(cols) * kTileBytes;
  }
};

// Dense rows of 4-bit codes to tiles and back. bits: of the operand.
Buffer tile_nibbles(int bits, const void* codes, int64_t rows, int64_t cols);
Buffer untile_nibbles(int bits, const void* stored, int64_t rows, int64_t cols);

}  // namespace tessera
