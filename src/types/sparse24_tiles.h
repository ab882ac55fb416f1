// SPDX-License-Identifier: Apache-2.0
// 2:4 sparse weights as Hopper's sparse wgmma reads them from registers (Layout::kSparse24Tiles), codes of 8 or 16
// bits. A tile is 128 rows of w by 128 bytes of k (128 or 64 numbers), tiles of the same rows follow one another along
// k. An instruction multiplies 64 rows by 64 bytes of k, of which 32 bytes are kept, so a tile is four instructions:
// half t of the rows, half c of k. For each of the 128 threads of a warpgroup a tile holds five times 16 bytes, plane
// by plane:
//   plane 2 t + c   the thread's kept codes of that instruction, four words
//   plane 4         word 2 t + c: the thread's metadata of that instruction
// Rows of w come in an order that gives a thread four neighbours: thread 32 a + 4 g + l (l < 4) has rows 4 (8 a + g) +
// 2 t and the next one, which are rows g and g + 8 of the 16 that its warp has in an instruction. Missing rows and
// columns are zeros that are kept at places 0 and 1. Bytes are as the PTX documentation draws them for 64 x 32 bytes of
// a dense operand, and metadata as for 64 x 64 of a sparse one.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "types/element.h"
#include "types/small_float.h"
#include "types/sparse24.h"

namespace tessera {

struct Sparse24Tiles {
  static constexpr int64_t kRows = 128, kBytesOfK = 128;  // of a tile
  static constexpr int kThreads = 128, kPlanes = 5, kPlaneBytes = kThreads * 16, kTileBytes = kPlanes * kPlaneBytes;

  // The row of a tile that a thread has as its first (upper = 0) or second one of an instruction.
  TS_HOST_DEVICE static constexpr int row(int thread, int t, int upper) { return thread / 4 * 4 + 2 * t + upper; }

  // Where in an instruction's 32 kept bytes of a row a byte of the thread's 16 lies, and of which of its two rows.
  struct Kept {
    int upper, byte;
  };
  TS_HOST_DEVICE static constexpr Kept kept(int thread, int byte) {
    const int word = byte / 4;
    return {word % 2, thread % 4 * 4 + word / 2 * 16 + byte % 4};
  }

  // Which groups of four a thread's word of metadata describes, four bits each, from the lowest on: of an instruction's
  // row (upper: its second one) groups `first` ... of the 16 (8 bits) or 8 (16 bits) that it has. Codes of 16 bits: two
  // rows, half a word each.
  struct Meta {
    int upper, first;
  };
  TS_HOST_DEVICE static constexpr Meta meta(int thread, int bits, int nibble) {
    if (bits == 8) return {thread % 2, thread / 2 % 2 * 8 + nibble};
    return {nibble / 4, thread % 2 * 4 + nibble % 4};
  }

  TS_HOST_DEVICE static constexpr int64_t tiles_of_rows(int64_t rows) { return (rows + kRows - 1) / kRows; }
  TS_HOST_DEVICE static constexpr int64_t tiles_of_k(int bits, int64_t cols) {
    return (cols * bits / 8 + kBytesOfK - 1) / kBytesOfK;
  }
  TS_HOST_DEVICE static constexpr int64_t bytes(int bits, int64_t rows, int64_t cols) {
    return tiles_of_rows(rows) * tiles_of_k(bits, cols) * kTileBytes;
  }
};

// Contract: codes of 8 or 16 bits.
Buffer tile24(const Sparse24& sparse, int bits, int64_t rows, int64_t cols);
Sparse24 untile24(const void* stored, int bits, int64_t rows, int64_t cols);

}  // namespace tessera
