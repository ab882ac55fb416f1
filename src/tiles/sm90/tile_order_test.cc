// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/tile_order.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace tessera {
namespace {

TEST(TileOrder, TakesEveryTileOnce) {
  for (const int heads : {1, 5, 16}) {
    for (const int row_tiles : {1, 2, 7}) {
      for (const int together : {1, 3, 16, 40}) {
        std::set<std::pair<int, int>> seen;
        for (int i = 0; i < heads * row_tiles; ++i) {
          const TilePlace at = place_tile(i, heads, row_tiles, together);
          EXPECT_TRUE(at.head >= 0 && at.head < heads && at.row_tile >= 0 && at.row_tile < row_tiles);
          EXPECT_TRUE(seen.insert({at.head, at.row_tile}).second);
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(heads * row_tiles));
      }
    }
  }
}

TEST(TileOrder, LongTilesComeFirst) {
  for (int i = 0; i + 1 < 3 * 8; ++i) {
    EXPECT_GE(place_tile(i, 7, 8, 3).row_tile, place_tile(i + 1, 7, 8, 3).row_tile);
    EXPECT_LT(place_tile(i, 7, 8, 3).head, 3) << "three heads at a time";
  }
}

TEST(TileOrder, RoundsGoToAndFro) {
  std::set<int> seen;
  for (int round = 0; round < 5; ++round) {
    for (int block = 0; block < 7; ++block) seen.insert(tile_of_round(round, block, 7));
  }
  EXPECT_EQ(seen.size(), 35u);
  EXPECT_EQ(*seen.rbegin(), 34);
  EXPECT_EQ(tile_of_round(0, 6, 7), 6);
  EXPECT_EQ(tile_of_round(1, 6, 7), 7) << "the last of a round is the first of the next";
}

}  // namespace
}  // namespace tessera
