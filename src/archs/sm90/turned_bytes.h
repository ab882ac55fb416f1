// SPDX-License-Identifier: Apache-2.0
// FP8 wgmma wants both operands K-major, but attention's V lies with its channels along the rows. A warp turns 32 tokens x 16 channels of bytes by ldmatrix.trans (which
// turns 16-bit pairs: two channels of one token stay together), a byte permutation that parts the channels, and stmatrix.
// What comes out has the tokens of each 16 in the order in which a thread's scores, rounded and packed, form operand A: position 4 q + e holds token_at(4 q + e), for the
// scores of thread q of a quad are the columns 2 q, 2 q + 1, 8 + 2 q and 8 + 2 q + 1. So P and V agree without a shuffle.
// Host and device, constexpr: tested on the CPU.
#pragma once

#include <cstdint>

#include "types/small_float.h"

namespace tessera::sm90 {

constexpr int kTurnTokens = 32, kTurnChannels = 16;  // of one step of a warp

// The token, of a group of 16, whose byte lies at this position of a turned row.
TS_HOST_DEVICE constexpr int token_at(int position) { return position / 4 * 2 + position % 2 + position % 4 / 2 * 8; }

// ldmatrix x4: the row that a lane addresses. Matrix m holds tokens 8 m ... 8 m + 7; a row is one token's 16 channels, 16 bytes.
TS_HOST_DEVICE constexpr int turn_source_token(int lane) { return lane; }

// stmatrix x4: the row that a lane addresses. Matrices 0 and 1 are positions 0-15, matrices 2 and 3 positions 16-31; of each two the first holds the even
// channels of 0-7 and the odd ones of 8-15, the second the others, so that the eight rows of a matrix are different modulo 8: they touch all banks.
TS_HOST_DEVICE constexpr int turn_target_channel(int lane) {
  const int matrix = lane / 8, pair = lane % 8;
  return 2 * pair + ((matrix & 1) ^ (pair / 4));
}
TS_HOST_DEVICE constexpr int turn_target_position(int lane) { return lane / 16 * 16; }

// Byte selectors that make a lane's part of matrix 0 (or 2), and of matrix 1 (or 3), out of two registers of ldmatrix: the even bytes are one channel, the odd ones the next.
TS_HOST_DEVICE constexpr uint32_t turn_selector(int lane, int matrix) { return ((matrix & 1) ^ (lane / 16)) != 0 ? 0x7531 : 0x6420; }

}  // namespace tessera::sm90
