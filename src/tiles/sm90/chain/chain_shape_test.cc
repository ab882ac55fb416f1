// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/chain/chain_shape.h"

#include <gtest/gtest.h>

#include "archs/sm90/chip.h"

namespace tessera::sm90 {
namespace {

TEST(FewKeys, SlicesFollowEachOtherAndCoverEveryKeyOnce) {
  for (int keys = 0; keys <= kMostFewKeys; ++keys) {
    int next = 0;
    for (int s = 0; s < kFewSlices; ++s) {
      const FewSlice slice = few_slice(keys, s);
      ASSERT_EQ(slice.begin, next) << keys << " keys, slice " << s;
      ASSERT_TRUE(slice.begin % kFewProduct == 0 || slice.begin == slice.end) << keys << " keys, slice " << s;
      ASSERT_LE(slice.groups(), kFewGroups) << keys << " keys, slice " << s;
      next = slice.end;
    }
    ASSERT_EQ(next, keys);
  }
}

// Regions of shared memory in their order: none reaches into the next, and all of it fits an SM.
TEST(ChainShape, RegionsOfSharedMemoryLieBehindEachOther) {
  for (const int tokens : {16, 64}) {
    const int widest = tokens * kSumsRow * 4;
    for (int x = 1024; x <= 128 * 1024; x += 4000) {
      const ChainMemory m = chain_memory(tokens, x, kMostSharedBytes);
      ASSERT_GE(m.stages, 2) << tokens << " tokens, " << x << " bytes of x";
      EXPECT_EQ(m.x, m.stages * kChainStageBytes);
      EXPECT_GE(m.sums, m.x + x);
      EXPECT_GE(m.records, m.sums + widest);
      EXPECT_EQ(m.barriers, m.records + 2 * kChainRecordBytes);
      // Barriers, then tops and totals of 64 rows of four warps.
      EXPECT_GE(m.bytes, m.barriers + (8 + 2 * m.stages) * 8 + 2 * 4 * 64 * 4);
      EXPECT_LE(m.bytes, kMostSharedBytes);
      for (const int at : {m.x, m.sums, m.records, m.barriers}) EXPECT_EQ(at % 128, 0);
      EXPECT_EQ(m.x % 1024, 0) << "a tile begins at a multiple of the swizzle's pattern";
    }
  }
}

TEST(ChainShape, WithoutRoomThereAreNoStages) { EXPECT_EQ(chain_memory(64, 220 * 1024, kMostSharedBytes).stages, 0); }

// What attention holds at once: the stages of its keys, then those of its values.
TEST(ChainShape, KeysOfASliceFitTheRingBesideWhatAttentionKeeps) {
  for (const int tokens : {16, 64}) {
    const ChainMemory m = chain_memory(tokens, few_x_bytes(tokens, kMostFewHead * 2), kMostSharedBytes);
    EXPECT_GE(m.stages, kFewGroups * kMostFewHead / 64) << tokens;
  }
}

TEST(FewMemory, StandsBesideABlockOfAMatmul) {
  for (const int head : {64, 128, 256}) {
    const FewMemory m = few_memory(head);
    EXPECT_EQ(m.queries % 1024, 0);
    EXPECT_GE(m.stages, kFewGroups * head / 64) << "all keys are loaded at once";
    EXPECT_LE(kFewSlices * few_sent_bytes(head), m.queries) << "results take the place of keys";
    for (const int at : {m.weights, m.inbox, m.numbers}) EXPECT_EQ(at % 16, 0) << head;
    EXPECT_EQ(m.barriers % 8, 0);
    EXPECT_LE(m.bytes, kSwappedSharedLimit) << head;
  }
}

TEST(ChainShape, SlicesKeepBlocksBusy) {
  constexpr int kBlocks = 132, kMost = 128 * 1024;
  // A denoising step of a 300 M expert in bf16: 1024 wide, 2560 of q, k and v, 2 x 4096 of the MLP.
  EXPECT_EQ(chain_split(2560 / 64, 1024 / 64, 16, kBlocks, kMost), 1);
  EXPECT_EQ(chain_split(1024 / 64, 2048 / 64, 16, kBlocks, kMost), 8);
  EXPECT_EQ(chain_split(8192 / 64, 1024 / 64, 16, kBlocks, kMost), 1);
  EXPECT_EQ(chain_split(1024 / 64, 4096 / 64, 16, kBlocks, kMost), 8);
  // Rows that do not fit whole are cut; what never fits is refused.
  EXPECT_GE(chain_split(4, 4096 / 64, 64, kBlocks, kMost), 4);
  EXPECT_EQ(chain_split(4, 65536 / 64, 64, kBlocks, kMost), 0);
  for (int blocks = 1; blocks < 40; ++blocks) {
    const int split = chain_split(3, blocks, 16, kBlocks, kMost);
    EXPECT_TRUE(split == 1 || 2 * split <= blocks) << blocks;
  }
}

}  // namespace
}  // namespace tessera::sm90
