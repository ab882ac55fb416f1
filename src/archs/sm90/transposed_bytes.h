// SPDX-License-Identifier: Apache-2.0
// How 8-bit values (attention's v, [token][channel] bytes) become wgmma's operand B, rows of tokens, a channel in each:
// ldmatrix.trans moves pairs of bytes, byte permutations part the two channels, stmatrix writes them.
//   Tokens of each 16: place 4 q + i of a row holds token {2 q, 2 q + 1, 8 + 2 q, 8 + 2 q + 1}[i], those whose scores
//   thread q of a quad has in its results: scores rounded to 8 bits are operand A as they lie.
//   Channels: in order; or in pairs, which leaves each thread four neighbours of 16 channels in its results.
// An order says, for one step of a warp, where each lane points ldmatrix and stmatrix (x4), and the selector of prmt
// that makes its part of matrix m out of registers m / 2 * 2 and + 1.
// Pure functions, tested on the host.
#pragma once

#include <cstdint>

#include "types/small_float.h"

namespace tessera::sm90 {

// Token of 16 at a place of a row.
TS_HOST_DEVICE constexpr int token_at(int place) { return place / 4 * 2 + place % 4 / 2 * 8 + place % 2; }

constexpr uint32_t kEvenBytes = 0x6420, kOddBytes = 0x7531;  // of two registers: one channel, and the next

struct ChannelsInOrder {
  static constexpr int kTokens = 32, kChannels = 16;  // of a step
  TS_HOST_DEVICE static constexpr int channel_of_row(int row) { return row; }
  TS_HOST_DEVICE static constexpr int source_token(int lane) { return lane; }
  TS_HOST_DEVICE static constexpr int source_chunk(int) { return 0; }  // 16 channels
  // Of the two matrices of 16 tokens the first holds the even channels of 0-7 and the odd ones of 8-15, the second the
  // others: the eight rows of a matrix differ modulo 8 and touch all banks.
  TS_HOST_DEVICE static constexpr int target_row(int lane) { return lane % 8 * 2 + ((lane / 8 & 1) ^ (lane % 8 / 4)); }
  TS_HOST_DEVICE static constexpr int target_place(int lane) { return lane / 16 * 16; }
  TS_HOST_DEVICE static constexpr uint32_t selector(int lane, int matrix) {
    return ((matrix & 1) ^ (lane / 16)) != 0 ? kOddBytes : kEvenBytes;
  }
};

// Rows of each 16: the even channels, then the odd ones.
struct ChannelsInPairs {
  static constexpr int kTokens = 16, kChannels = 32;
  TS_HOST_DEVICE static constexpr int channel_of_row(int row) { return row / 16 * 16 + row % 8 * 2 + row % 16 / 8; }
  TS_HOST_DEVICE static constexpr int source_token(int lane) { return lane % 16; }
  TS_HOST_DEVICE static constexpr int source_chunk(int lane) { return lane / 16; }
  TS_HOST_DEVICE static constexpr int target_row(int lane) { return lane; }
  TS_HOST_DEVICE static constexpr int target_place(int) { return 0; }
  TS_HOST_DEVICE static constexpr uint32_t selector(int, int matrix) {
    return (matrix & 1) != 0 ? kOddBytes : kEvenBytes;
  }
};

}  // namespace tessera::sm90
