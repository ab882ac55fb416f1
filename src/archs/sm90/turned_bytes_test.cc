// SPDX-License-Identifier: Apache-2.0
#include "archs/sm90/turned_bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "archs/sm90/swizzle.h"

namespace tessera::sm90 {
namespace {

struct Byte {
  int token = -1, channel = -1;
  bool operator==(const Byte&) const = default;
};
using Register = std::array<Byte, 4>;

// What the instructions do, with bytes that know where they come from.
Register load_transposed(int lane, int matrix) {
  // The lane gets, of column lane / 4 (a pair of channels), the rows 2 (lane % 4) and the next.
  Register r;
  for (int half = 0; half < 2; ++half) {
    const int row = 2 * (lane % 4) + half, addressed_by = matrix * 8 + row;
    for (int i = 0; i < 2; ++i) r[static_cast<size_t>(2 * half + i)] = {turn_source_token(addressed_by), lane / 4 * 2 + i};
  }
  return r;
}
Register permute(const Register& a, const Register& b, uint32_t selector) {
  Register r;
  for (size_t i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7;
    r[i] = from < 4 ? a[from] : b[from - 4];
  }
  return r;
}

TEST(TurnedBytes, EveryByteArrivesWhereOperandAWantsIt) {
  std::array<std::array<Byte, kTurnTokens>, kTurnChannels> turned{};
  for (int matrix = 0; matrix < 4; ++matrix) {
    for (int lane = 0; lane < 32; ++lane) {
      const Register first = load_transposed(lane, matrix / 2 * 2), second = load_transposed(lane, matrix / 2 * 2 + 1);
      const Register out = permute(first, second, turn_selector(lane, matrix));
      const int addressed_by = matrix * 8 + lane / 4;  // row lane / 4 of the matrix, bytes 4 (lane % 4) ...
      const auto row = static_cast<size_t>(turn_target_channel(addressed_by));
      for (size_t i = 0; i < 4; ++i) turned[row][static_cast<size_t>(turn_target_position(addressed_by) + lane % 4 * 4) + i] = out[i];
    }
  }
  for (int channel = 0; channel < kTurnChannels; ++channel) {
    for (int position = 0; position < kTurnTokens; ++position) {
      const Byte want{position / 16 * 16 + token_at(position % 16), channel};
      EXPECT_EQ(turned[static_cast<size_t>(channel)][static_cast<size_t>(position)], want) << channel << " " << position;
    }
  }
}

TEST(TurnedBytes, TokensAreInTheOrderOfPackedScores) {
  // Thread q of a quad holds the columns 8 j + 2 q and the next; four of them, of j = 0 and 1, are bytes 4 q ... of operand A.
  for (int q = 0; q < 4; ++q) {
    for (int j = 0; j < 2; ++j) {
      for (int i = 0; i < 2; ++i) EXPECT_EQ(token_at(4 * q + 2 * j + i), 8 * j + result_col(q) + i);
    }
  }
}

TEST(TurnedBytes, RowsOfOneMatrixTouchAllBanks) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::set<uint32_t> read, read_short, written;
    for (int i = 0; i < 8; ++i) {
      const int lane = matrix * 8 + i;
      read.insert(swizzled_offset(static_cast<uint32_t>(turn_source_token(lane)), 16) / 16 % 8);
      read_short.insert(swizzled_offset<64>(static_cast<uint32_t>(turn_source_token(lane)), 16) / 16 % 8);
      written.insert(swizzled_offset(static_cast<uint32_t>(turn_target_channel(lane)), static_cast<uint32_t>(turn_target_position(lane))) / 16 % 8);
    }
    EXPECT_EQ(read.size(), 8u);
    EXPECT_EQ(read_short.size(), 8u);
    EXPECT_EQ(written.size(), 8u);
  }
}

}  // namespace
}  // namespace tessera::sm90
