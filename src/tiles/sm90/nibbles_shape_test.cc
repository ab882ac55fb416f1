// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/nibbles_shape.h"

#include <gtest/gtest.h>

#include "archs/sm90/chip.h"
#include "archs/sm90/swizzle.h"

namespace tessera::sm90 {
namespace {

// Register r of a thread has row result_row, or 8 more where r is odd, and of an instruction's 16 columns of 16 bits 2
// (thread % 4) and the next one, eight more from r = 2 on; of 32 columns of 8 bits 4 (thread % 4) and the next three,
// 16 more from r = 2 on.
TEST(NibbleOperands, AreWhereWgmmaReadsThem) {
  for (int tile = 0; tile < 2; ++tile) {
    for (int thread = 0; thread < 64; ++thread) {
      const int row = result_row(tile * 64 + thread) - tile * 32;
      for (int word = 0; word < 8; ++word) {
        for (int number = 0; number < 8; ++number) {
          const auto half = NibbleTiles::code(16, thread, word, number),
                     byte = NibbleTiles::code(8, thread, word, number);
          const int reg16 = number / 2, reg8 = word % 2 * 2 + number / 4;
          EXPECT_EQ(half.row, turn_pairs32(row + reg16 % 2 * 8));
          EXPECT_EQ(half.col, word * 16 + thread % 4 * 2 + reg16 / 2 * 8 + number % 2);
          EXPECT_EQ(byte.row, turn_pairs32(row + reg8 % 2 * 8));
          EXPECT_EQ(byte.col, word / 2 * 32 + thread % 4 * 4 + reg8 / 2 * 16 + number % 4);
        }
      }
      // The thread's scales of a tile: eight bytes of its row, and of the one eight places on.
      const int at = (thread / 32 * 16 + thread % 32 / 4) * 8;
      for (int block = 0; block < 8; ++block) {
        EXPECT_EQ(layout_index(Layout::kTiles32x8, turn_pairs32(row), block, 32, 8), at + block);
        EXPECT_EQ(layout_index(Layout::kTiles32x8, turn_pairs32(row + 8), block, 32, 8), at + 64 + block);
      }
    }
  }
  EXPECT_EQ(kNibbleScaleBytes, 256);
}

// Regions begin where loads and barriers want them, do not overlap, and leave room for two blocks on an SM.
TEST(NibbleShape, MemoryHoldsWhatItMust) {
  for (const int bits : {8, 16}) {
    for (const int64_t m : {1, 10, 50, 300}) {
      for (const int k_blocks : {1, 2, 3, 8, 16, 32, 128}) {
        const auto shapes = rank_nibble_shapes(m, 8192, k_blocks, bits, kSms);
        ASSERT_FALSE(shapes.empty());
        for (const NibbleShape& s : shapes) {
          const NibbleMemory memory = nibble_memory(s, bits, k_blocks);
          EXPECT_GE(memory.stages, std::min(3, longest_slice(k_blocks, s.split)));
          EXPECT_LE(memory.stages, longest_slice(k_blocks, s.split));
          EXPECT_LE(memory.bytes, kSwappedSharedLimit);
          EXPECT_EQ(nibble_x_bytes(s.tokens, bits) % kSwizzleAtomBytes, 0);
          EXPECT_EQ(memory.codes, memory.stages * nibble_x_bytes(s.tokens, bits));
          EXPECT_EQ(memory.scales - memory.codes, memory.stages * s.groups * 2 * NibbleTiles::kTileBytes);
          EXPECT_GE(memory.body_bytes, memory.scales + memory.stages * s.groups * 2 * kNibbleScaleBytes);
          EXPECT_GE(memory.body_bytes, s.groups * s.tokens * kSumsRow * 4);
          EXPECT_EQ(memory.body_bytes % 128, 0);
          EXPECT_EQ(memory.table - memory.body_bytes, s.groups * (s.split - 1) * sent_bytes({s.tokens, s.split}));
          EXPECT_EQ(memory.barriers - memory.table, bits == 8 ? 2048 : 0);
          EXPECT_EQ(memory.barriers % 8, 0);
          EXPECT_EQ(memory.bytes - memory.barriers, s.groups * 8 + memory.stages * 16);
          EXPECT_EQ(s.tokens / s.split * kSumsRow * 4 % 16, 0);
        }
      }
    }
  }
}

// Of the shapes that the ranking is about: few weights are cut along K to reach all SMs, many are not; many tokens of
// many weights take both groups, which halves what is loaded of x.
TEST(NibbleShape, TheFirstFillsTheChip) {
  for (const int bits : {8, 16}) {
    for (const int64_t m : {1, 10, 16, 50, 64}) {
      const NibbleShape few = rank_nibble_shapes(m, 1024, 32, bits, kSms)[0],
                        many = rank_nibble_shapes(m, 32768, 16, bits, kSms)[0];
      EXPECT_GE(1024 / few.channels() * few.split * ((m + few.tokens - 1) / few.tokens), 64);
      EXPECT_EQ(many.groups, 2) << m << " " << bits;
      EXPECT_LE(many.split, 2);
      EXPECT_EQ(many.tokens >= m, true);
    }
  }
}

}  // namespace
}  // namespace tessera::sm90
