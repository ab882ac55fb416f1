// SPDX-License-Identifier: Apache-2.0
// How 8-bit values (attention's v, [token][channel] bytes) become wgmma's operand B, [channel][token], and who then holds what.
// ldmatrix.trans moves pairs of bytes, so four of its tiles give a thread two channels of four tokens; two byte permutations part the channels, stmatrix writes them:
//   place 4q + i of a row's 16 tokens holds token {2q, 2q + 1, 8 + 2q, 8 + 2q + 1}[i]: the tokens whose scores thread q of a row has in its results, so that scores rounded
//   to 8 bits are operand A as they lie; row n of 16 holds channel 2n (n < 8) or 2 (n - 8) + 1, so that a thread's results of 16 channels are four neighbours.
// Pure functions, tested on the host.
#pragma once

#include "types/small_float.h"

namespace tessera::sm90 {

struct Place {
  int row, chunk;  // chunk: 16 bytes of a row
};

// ldmatrix.x4.trans of 16 tokens and 32 channels: token and chunk of channels that the lane points at.
TS_HOST_DEVICE constexpr Place transpose_source(int lane) { return {lane % 16, lane / 16}; }
// stmatrix.x4 of 32 channels and 16 tokens (one chunk): row that the lane points at.
TS_HOST_DEVICE constexpr int transpose_target(int lane) { return lane; }
// Byte selectors of prmt over (tokens 0-7, tokens 8-15) of the same channels: the even channels' and the odd ones'.
constexpr unsigned kEvenChannels = 0x6420, kOddChannels = 0x7531;

// Token of 16 at a place of a row, channel of 16 that a row holds.
TS_HOST_DEVICE constexpr int token_at(int place) { return place / 4 * 2 + place % 4 / 2 * 8 + place % 2; }
TS_HOST_DEVICE constexpr int channel_of_row(int row) { return row % 8 * 2 + row / 8; }

// wgmma's 8-bit operand A in registers, 64 x 32: byte i of register r of a thread is row `result_row(thread)` + 8 * (r % 2), column:
TS_HOST_DEVICE constexpr int a_column(int thread, int r, int i) { return r / 2 * 16 + thread % 4 * 4 + i; }

}  // namespace tessera::sm90
