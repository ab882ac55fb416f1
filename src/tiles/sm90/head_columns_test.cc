// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/head_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tiles/kept_rows.h"

namespace tessera::sm90 {
namespace {

// Blocks take every channel once; of those that turn, both numbers of a pair lie in one block, a partner's piece apart.
TEST(HeadColumns, BlocksHoldBothNumbersOfEveryPair) {
  const HeadColumns all[] = {{64, 32, 192},  {128, 64, 256},  {256, 128, 2304}, {16, 8, 144},   {32, 16, 160},
                             {32, 8, 96},    {48, 8, 144},    {64, 16, 192},    {128, 32, 384}, {192, 64, 384},
                             {256, 96, 512}, {320, 160, 640}, {0, 0, 0}};
  for (const HeadColumns& h : all) {
    if (h.pairs > 0) {
      ASSERT_TRUE(HeadColumns::fits(h.head, h.pairs)) << h.head;
    }
    const int channels = (h.columns + 63) / 64 * 64 + 128;
    std::set<int> seen;
    for (int block = 0; block < channels; block += 64) {
      for (int piece = 0; piece < 8; ++piece) {
        const int channel = h.channel_of(block, piece);
        EXPECT_EQ(channel % 8, 0);
        EXPECT_TRUE(seen.insert(channel).second) << h.head << " " << channel;
        if (h.columns == 0 || !h.turns(channel)) continue;
        const int pair = h.pair(channel), other = h.channel_of(block, piece ^ h.partner());
        EXPECT_EQ(other, h.is_second(channel) ? channel - h.pairs : channel + h.pairs) << h.head << " " << channel;
        EXPECT_EQ(pair, channel % h.head - (h.is_second(channel) ? h.pairs : 0));
        EXPECT_EQ(h.pair(channel + 7), pair + 7) << "eight channels have eight angles in a row";
      }
      EXPECT_EQ(h.first_run(block) % 32, 0) << "stored rows are in groups of 32";
      EXPECT_EQ(h.second_run(block) % 32, 0);
    }
    EXPECT_EQ(static_cast<int>(seen.size()), channels / 8);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), channels - 8);
  }
  for (const auto& [head, pairs] : {std::pair{72, 36}, {64, 24}, {96, 32}, {24, 8}, {16, 4}, {48, 16}})
    EXPECT_FALSE(HeadColumns::fits(head, pairs)) << head << " " << pairs;
}

TEST(KeptRows, AreRowsOfACache) {
  const KeptRows tokens_first{.batch = 2, .outer = 1, .rows = 5, .run = 12, .tokens = 3};  // [2, 5, 3, 4]
  EXPECT_EQ(tokens_first.index(1, 2, 7), (1 * 5 + 2) * 12 + 7);
  const KeptRows heads_first{.batch = 2, .outer = 3, .rows = 5, .run = 4, .tokens = 3};  // [2, 3, 5, 4]
  EXPECT_EQ(heads_first.index(1, 2, 7), ((1 * 3 + 1) * 5 + 2) * 4 + 3);
  for (const int number : {-7, 0, 1, 2, 3, 100}) EXPECT_EQ(tokens_first.first_row(number), std::clamp(number, 0, 2));
}

}  // namespace
}  // namespace tessera::sm90
