// SPDX-License-Identifier: Apache-2.0
#include "archs/sm90/fragments.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <vector>

#include "archs/sm90/swizzle.h"

namespace tessera::sm90 {
namespace {

using Registers = std::array<std::array<uint32_t, 4>, 32>;  // of a warp

uint32_t pair_at(const std::vector<uint8_t>& memory, uint32_t address) {
  return memory[address] | memory[address + 1] << 8;
}

// ldmatrix.x4.trans: lane t gets of tile i the column t / 4, rows 2 (t % 4) and + 1; row r of tile i starts at the
// address that lane 8 i + r gave.
Registers load_transposed(const std::vector<uint8_t>& memory, const std::array<uint32_t, 32>& address) {
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
void store(std::vector<uint8_t>& memory, const std::array<uint32_t, 32>& address, const Registers& r) {
  for (size_t t = 0; t < 32; ++t) {
    for (size_t i = 0; i < 4; ++i) {
      for (uint32_t b = 0; b < 4; ++b)
        memory[address[8 * i + t / 4] + t % 4 * 4 + b] = static_cast<uint8_t>(r[t][i] >> (8 * b));
    }
  }
}
uint32_t permute(uint32_t a, uint32_t b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t r = 0;
  for (unsigned i = 0; i < 4; ++i)
    r |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
  return r;
}

// The kernel's road for 32 tokens and 32 channels, rows of v 64 and 128 bytes long, then read back through the swizzle
// as wgmma does.
template <int kRowBytes>
void transpose_and_check() {
  constexpr int kTokens = 32, kChannels = 32;
  std::mt19937 random(1);
  std::vector<uint8_t> v(kTokens * kRowBytes), transposed(kChannels * 128);
  for (uint8_t& x : v) x = static_cast<uint8_t>(random());
  for (int group = 0; group < kTokens / 16; ++group) {
    std::array<uint32_t, 32> from{}, to{};
    for (int lane = 0; lane < 32; ++lane) {
      const Place at = transpose_source(lane);
      from[static_cast<size_t>(lane)] =
          swizzled_offset<kRowBytes>(static_cast<uint32_t>(16 * group + at.row), static_cast<uint32_t>(at.chunk * 16));
      to[static_cast<size_t>(lane)] =
          swizzled_offset(static_cast<uint32_t>(transpose_target(lane)), static_cast<uint32_t>(group * 16));
    }
    const Registers got = load_transposed(v, from);
    Registers parted{};
    for (size_t t = 0; t < 32; ++t) {
      for (size_t i = 0; i < 4; i += 2) {
        parted[t][i] = permute(got[t][i], got[t][i + 1], kEvenChannels);
        parted[t][i + 1] = permute(got[t][i], got[t][i + 1], kOddChannels);
      }
    }
    store(transposed, to, parted);
  }
  for (int row = 0; row < kChannels; ++row) {
    for (int place = 0; place < kTokens; ++place) {
      const auto token = static_cast<uint32_t>(place / 16 * 16 + token_at(place % 16));
      const auto channel = static_cast<uint32_t>(row / 16 * 16 + channel_of_row(row % 16));
      EXPECT_EQ(transposed[swizzled_offset(static_cast<uint32_t>(row), static_cast<uint32_t>(place))],
                v[swizzled_offset<kRowBytes>(token, channel)])
          << "row " << row << " place " << place;
    }
  }
}

TEST(Transpose, TokensAndChannelsLandWhereTheMapsSay) {
  transpose_and_check<64>();
  transpose_and_check<128>();
}

TEST(Transpose, StoresTouchAllBanks) {
  for (int tile = 0; tile < 4; ++tile) {
    std::set<uint32_t> chunks;
    for (int lane = 8 * tile; lane < 8 * tile + 8; ++lane)
      chunks.insert(swizzled_offset(static_cast<uint32_t>(transpose_target(lane)), 48) / 16 % 8);
    EXPECT_EQ(chunks.size(), 8u);
  }
}

// Scores of a thread, rounded and packed as they lie (two of group j, two of group j + 1), are operand A with the
// tokens in the order of the transposed rows.
TEST(Fragments, PackedScoresAreOperandA) {
  for (int thread = 0; thread < 128; ++thread) {
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 4; ++i) {
        const int column = a_column(thread, r, i), group = r / 2;  // 16 tokens: results' groups 2 group and 2 group + 1
        const int token = 16 * group + 8 * (i / 2) + result_col(thread) + i % 2;
        EXPECT_EQ(column / 16 * 16 + token_at(column % 16), token) << thread << " " << r << " " << i;
      }
    }
  }
}

// Columns 8 j + c, c + 1 and 8 (j + 1) + c, c + 1 of a thread's results, j even, are four neighbouring channels.
TEST(Fragments, ResultsOfSixteenChannelsAreNeighbours) {
  for (int thread = 0; thread < 4; ++thread) {
    const int c = result_col(thread);
    const int channels[] = {channel_of_row(c), channel_of_row(8 + c), channel_of_row(c + 1), channel_of_row(8 + c + 1)};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(channels[i], 4 * thread + i);
  }
}

}  // namespace
}  // namespace tessera::sm90
