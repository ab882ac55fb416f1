// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/swapped_shape.h"
#include "archs/sm90/chip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "archs/sm90/swizzle.h"

namespace tessera::sm90 {
namespace {

TEST(SwappedSums, EveryNumberHasItsPlace) {
  std::set<int> seen;
  for (int token = 0; token < 112; ++token) {
    for (int channel = 0; channel < kSwappedChannels; ++channel) seen.insert(sums_word(token, channel));
  }
  EXPECT_EQ(seen.size(), 112u * 64u);
  EXPECT_LT(*seen.rbegin(), 112 * kSumsRow);
  EXPECT_EQ(*seen.begin(), 0);
}

// The rows of tokens that a block sends to another lie side by side, as they will lie there.
TEST(SwappedSums, ASharesRowsAreOnePiece) {
  const SwappedShape shape{112, 4};
  for (int rank = 0; rank < 4; ++rank) {
    for (int row = 0; row < 28; ++row) {
      for (int channel = 0; channel < 64; ++channel)
        EXPECT_EQ(sums_word(rank * 28 + row, channel) * 4, rank * sent_bytes(shape) + sums_word(row, channel) * 4);
    }
  }
}

// A warp writes one number per thread: channel by result_row, token by result_col (here rows are channels).
TEST(SwappedSums, AWarpWritesToAllBanks) {
  for (int warp = 0; warp < 4; ++warp) {
    for (int i = 0; i < 56; ++i) {
      std::set<int> banks;
      for (int thread = warp * 32; thread < warp * 32 + 32; ++thread) {
        banks.insert(sums_word(i / 4 * 8 + result_col(thread) + i % 2, result_row(thread) + i / 2 % 2 * 8) % 32);
      }
      EXPECT_EQ(banks.size(), 32u) << "warp " << warp << " number " << i;
    }
  }
}

// The numbers of all threads of a product are all numbers of its tile.
TEST(SwappedSums, AProductFillsItsTile) {
  std::set<int> seen;
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 56; ++i)
      seen.insert(sums_word(i / 4 * 8 + result_col(thread) + i % 2, result_row(thread) + i / 2 % 2 * 8));
  }
  EXPECT_EQ(seen.size(), 112u * 64u);
}

// Eight threads read four neighbouring channels each, 16 bytes in one piece, from all banks.
TEST(SwappedSums, AQuarterOfAWarpReadsAllBanks) {
  for (int half = 0; half < 2; ++half) {
    std::set<int> banks;
    for (int thread = 0; thread < 8; ++thread) {
      const int word = sums_word(5, thread * 8 + half * 4);
      EXPECT_EQ(word % 4, 0);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(sums_word(5, thread * 8 + half * 4 + i), word + i);
        banks.insert((word + i) % 32);
      }
    }
    EXPECT_EQ(banks.size(), 32u);
  }
}

TEST(SwappedShape, SlicesCoverK) {
  for (int k_blocks = 1; k_blocks < 70; ++k_blocks) {
    for (int split = 1; split <= 8 && split <= k_blocks; split *= 2) {
      EXPECT_EQ(slice_begin(k_blocks, split, 0), 0);
      EXPECT_EQ(slice_begin(k_blocks, split, split), k_blocks);
      for (int rank = 0; rank < split; ++rank) {
        const int length = slice_begin(k_blocks, split, rank + 1) - slice_begin(k_blocks, split, rank);
        EXPECT_GE(length, 1);
        EXPECT_LE(length, longest_slice(k_blocks, split));
      }
    }
  }
}

TEST(SwappedShape, TwoBlocksFitAProcessor) {
  for (const int tokens : kSwappedTokens) {
    for (int split = 1; split <= 8; split *= 2) {
      EXPECT_EQ(tokens % split, 0);
      for (const int k_blocks : {1, 2, 6, 12, 24, 128, 512}) {
        const SwappedMemory memory = swapped_memory({tokens, split}, k_blocks);
        EXPECT_GE(memory.stages, std::min(3, longest_slice(k_blocks, split)));
        EXPECT_LE(memory.bytes, kSwappedSharedLimit);
        EXPECT_GE(memory.body_bytes, memory.stages * swapped_stage_bytes(tokens));
        EXPECT_GE(memory.body_bytes, tokens * kSumsRow * 4);
        EXPECT_EQ(memory.barriers - memory.body_bytes, (split - 1) * sent_bytes({tokens, split}));
        EXPECT_EQ(memory.bytes - memory.barriers, memory.stages * 16 + 8);
        EXPECT_EQ(memory.body_bytes % 16, 0);  // what is sent is copied in units of 16 bytes; barriers take 8
        EXPECT_EQ(sent_bytes({tokens, split}) % 16, 0);
      }
    }
  }
  EXPECT_EQ(swapped_stage_bytes(112) % kSwizzleAtomBytes, 0);
}

TEST(SwappedShape, EveryProblemHasLegalOnes) {
  for (const int64_t m : {0, 1, 7, 16, 17, 33, 64, 65, 197, 300, 1024}) {
    for (const int64_t n : {8, 64, 768, 1000, 2304, 3072, 16384}) {
      for (const int k_blocks : {1, 2, 3, 6, 12, 24, 48, 128, 1024}) {
        const std::vector<SwappedShape> shapes = rank_swapped_shapes(m, n, k_blocks, kSms);
        ASSERT_FALSE(shapes.empty());
        int64_t last = 0;
        for (const SwappedShape& s : shapes) {
          EXPECT_TRUE(is_legal(s, k_blocks)) << m << " " << n << " " << k_blocks;
          EXPECT_TRUE(s.split == 1 || k_blocks >= 2 * s.split) << m << " " << n << " " << k_blocks;
          EXPECT_TRUE(s.tokens == 16 || s.tokens / 2 < m) << "more than half of a tile is empty";
          EXPECT_LE(last, swapped_cost(s, m, n, k_blocks, kSms));
          last = swapped_cost(s, m, n, k_blocks, kSms);
        }
      }
    }
  }
}

// Where the work allows it, at least half of the SMs have a block.
TEST(SwappedShape, SpreadsTheLayersOfAViT) {
  struct Layer {
    int64_t n;
    int k_blocks;
  };
  for (const Layer& l : {Layer{2304, 6}, Layer{768, 6}, Layer{3072, 6}, Layer{768, 24}, Layer{2304, 12}, Layer{768, 12},
                         Layer{3072, 12}, Layer{768, 48}}) {
    const SwappedShape s = rank_swapped_shapes(197, l.n, l.k_blocks, kSms)[0];
    const int64_t blocks = (l.n + 63) / 64 * ((197 + s.tokens - 1) / s.tokens) * s.split;
    EXPECT_GE(blocks, kSms / 2) << l.n << " " << l.k_blocks;
    EXPECT_LE(blocks, 3 * kSms) << l.n << " " << l.k_blocks;
  }
}

}  // namespace
}  // namespace tessera::sm90
