// SPDX-License-Identifier: Apache-2.0
#include "plan/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera {
namespace {

bool alive_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

TEST(Arena, BlocksThatLiveTogetherNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> blocks;
    for (int i = 0; i < 40; ++i) {
      const int first = static_cast<int>(random() % 50);
      blocks.push_back({static_cast<int64_t>(random() % 5000), first, first + static_cast<int>(random() % 10)});
    }
    const ArenaPlacement placed = place_blocks(blocks);
    for (size_t a = 0; a < blocks.size(); ++a) {
      EXPECT_EQ(placed.offsets[a] % 256, 0);
      EXPECT_LE(placed.offsets[a] + blocks[a].bytes, placed.bytes);
      for (size_t b = a + 1; b < blocks.size(); ++b) {
        if (!alive_together(blocks[a], blocks[b])) continue;
        const bool apart = placed.offsets[a] + blocks[a].bytes <= placed.offsets[b] ||
                           placed.offsets[b] + blocks[b].bytes <= placed.offsets[a];
        EXPECT_TRUE(apart) << "round " << round << " blocks " << a << " and " << b;
      }
    }
  }
}

TEST(Arena, AChainReusesTwoBuffers) {
  std::vector<Lifetime> chain;
  for (int i = 0; i < 20; ++i) chain.push_back({1024, i, i + 1});
  EXPECT_EQ(place_blocks(chain).bytes, 2048);
}

TEST(Arena, PeakIsReachedForAResidualBlock) {
  // residual alive over all steps, a wide hidden layer in the middle: peak of live bytes is 256 * (4 + 16 + 4).
  const std::vector<Lifetime> blocks = {{1024, 0, 4}, {1024, 1, 2}, {4096, 2, 3}, {1024, 3, 4}};
  EXPECT_EQ(place_blocks(blocks).bytes, 1024 + 4096 + 1024);
}

}  // namespace
}  // namespace tessera
