// SPDX-License-Identifier: Apache-2.0
#include "archs/sm90/transposed_bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <vector>

#include "archs/sm90/swizzle.h"

namespace tessera::sm90 {
namespace {

using Registers = std::array<std::array<uint32_t, 4>, 32>;  // of a warp
using Addresses = std::array<uint32_t, 32>;

// What the instructions do.
uint32_t pair_at(const std::vector<uint8_t>& memory, uint32_t address) {
  return memory[address] | memory[address + 1] << 8;
}

// ldmatrix.x4.trans: lane t gets of tile i the column t / 4, rows 2 (t % 4) and + 1; row r of tile i starts at the
// address that lane 8 i + r gave.
Registers load_transposed(const std::vector<uint8_t>& memory, const Addresses& address) {
  Registers r{};
  for (size_t t = 0; t < 32; ++t) {
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = 8 * i + 2 * (t % 4);
      const auto column = static_cast<uint32_t>(t / 4 * 2);
      r[t][i] = pair_at(memory, address[row] + column) | pair_at(memory, address[row + 1] + column) << 16;
    }
  }
  return r;
}
// stmatrix.x4: lane t gives of tile i row t / 4, bytes 4 (t % 4) ... + 3.
void store(std::vector<uint8_t>& memory, const Addresses& address, const Registers& r) {
  for (size_t t = 0; t < 32; ++t) {
    for (size_t i = 0; i < 4; ++i) {
      for (uint32_t b = 0; b < 4; ++b)
        memory[address[8 * i + t / 4] + t % 4 * 4 + b] = static_cast<uint8_t>(r[t][i] >> (8 * b));
    }
  }
}
uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t r = 0;
  for (unsigned i = 0; i < 4; ++i)
    r |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
  return r;
}

// The kernels' road for 64 tokens and 64 channels, rows of v kRowBytes long, then read back through the swizzle as
// wgmma does.
template <class Order, int kRowBytes>
void transpose_and_check() {
  constexpr int kTokens = 64, kChannels = 64;
  std::mt19937 random(1);
  std::vector<uint8_t> v(kTokens * kRowBytes), transposed(kChannels * 128, 0xa5);
  for (uint8_t& x : v) x = static_cast<uint8_t>(random());
  for (int first_token = 0; first_token < kTokens; first_token += Order::kTokens) {
    for (int first_channel = 0; first_channel < kChannels; first_channel += Order::kChannels) {
      Addresses from{}, to{};
      for (int lane = 0; lane < 32; ++lane) {
        const auto i = static_cast<size_t>(lane);
        from[i] = swizzled_offset<kRowBytes>(static_cast<uint32_t>(first_token + Order::source_token(lane)),
                                             static_cast<uint32_t>(first_channel + Order::source_chunk(lane) * 16));
        to[i] = swizzled_offset(static_cast<uint32_t>(first_channel + Order::target_row(lane)),
                                static_cast<uint32_t>(first_token + Order::target_place(lane)));
      }
      const Registers got = load_transposed(v, from);
      Registers parted{};
      for (size_t t = 0; t < 32; ++t) {
        for (size_t m = 0; m < 4; ++m)
          parted[t][m] = permute(got[t][m / 2 * 2], got[t][m / 2 * 2 + 1],
                                 Order::selector(static_cast<int>(t), static_cast<int>(m)));
      }
      store(transposed, to, parted);
    }
  }
  for (int row = 0; row < kChannels; ++row) {
    for (int place = 0; place < kTokens; ++place) {
      const auto token = static_cast<uint32_t>(place / 16 * 16 + token_at(place % 16));
      const auto channel = static_cast<uint32_t>(Order::channel_of_row(row));
      EXPECT_EQ(transposed[swizzled_offset(static_cast<uint32_t>(row), static_cast<uint32_t>(place))],
                v[swizzled_offset<kRowBytes>(token, channel)])
          << "row " << row << " place " << place;
    }
  }
}

TEST(TransposedBytes, TokensAndChannelsLandWhereTheMapsSay) {
  transpose_and_check<ChannelsInOrder, 64>();
  transpose_and_check<ChannelsInOrder, 128>();
  transpose_and_check<ChannelsInPairs, 64>();
  transpose_and_check<ChannelsInPairs, 128>();
}

template <class Order>
void check_banks() {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::set<uint32_t> read, read_short, written;
    for (int lane = 8 * matrix; lane < 8 * matrix + 8; ++lane) {
      const auto token = static_cast<uint32_t>(Order::source_token(lane)),
                 channel = static_cast<uint32_t>(Order::source_chunk(lane) * 16);
      read.insert(swizzled_offset(token, channel) / 16 % 8);
      read_short.insert(swizzled_offset<64>(token, channel) / 16 % 8);
      written.insert(swizzled_offset(static_cast<uint32_t>(Order::target_row(lane)),
                                     static_cast<uint32_t>(Order::target_place(lane))) /
                     16 % 8);
    }
    EXPECT_EQ(read.size(), 8u) << matrix;
    EXPECT_EQ(read_short.size(), 8u) << matrix;
    EXPECT_EQ(written.size(), 8u) << matrix;
  }
}

TEST(TransposedBytes, RowsOfOneMatrixTouchAllBanks) {
  check_banks<ChannelsInOrder>();
  check_banks<ChannelsInPairs>();
}

// Scores of a thread, rounded and packed as they lie (two of group j of its results, two of group j + 1), are wgmma's
// 8-bit operand A in registers, 64 x 32, with the tokens in the order of the transposed rows: byte i of register r of a
// thread is column r / 2 * 16 + thread % 4 * 4 + i.
TEST(TransposedBytes, PackedScoresAreOperandA) {
  for (int thread = 0; thread < 128; ++thread) {
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 4; ++i) {
        const int column = r / 2 * 16 + thread % 4 * 4 + i;
        const int token = r / 2 * 16 + 8 * (i / 2) + result_col(thread) + i % 2;
        EXPECT_EQ(column / 16 * 16 + token_at(column % 16), token) << thread << " " << r << " " << i;
      }
    }
  }
}

// Columns 8 j + c, c + 1 and 8 (j + 1) + c, c + 1 of a thread's results, j even, are four neighbouring channels.
TEST(TransposedBytes, ResultsOfChannelsInPairsAreNeighbours) {
  for (int thread = 0; thread < 4; ++thread) {
    const int c = result_col(thread), rows[] = {c, 8 + c, c + 1, 8 + c + 1};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(ChannelsInPairs::channel_of_row(rows[i]), 4 * thread + i);
  }
}

}  // namespace
}  // namespace tessera::sm90
