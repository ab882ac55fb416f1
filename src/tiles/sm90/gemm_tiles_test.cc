// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/gemm_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tessera::sm90 {
namespace {

// Calls f(block, row, col) for every tile in the order in which its block takes it.
template <class F>
void walk(const GemmTiles& t, F f) {
  for (uint32_t block = 0; block < t.blocks; ++block) {
    for (uint32_t number = block; number < t.count; number += t.blocks) f(block, t.row(number), t.col(number));
  }
}

void expect_each_once(const GemmTiles& t) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  std::set<uint32_t> busy;
  walk(t, [&](uint32_t block, uint32_t row, uint32_t col) {
    EXPECT_TRUE(row < t.rows && col < t.cols);
    EXPECT_TRUE(seen.insert({row, col}).second) << row << ", " << col << " twice";
    busy.insert(block);
  });
  EXPECT_EQ(seen.size(), size_t{t.rows} * t.cols);
  EXPECT_EQ(busy.size(), t.blocks) << "a block without a tile";
}

constexpr uint32_t kSizes[] = {1, 2, 7, 11, 12, 66, 67, 99, 132, 133, 200};

TEST(GemmTiles, AreTakenOnce) {
  for (const uint32_t rows : kSizes) {
    for (const uint32_t cols : kSizes) {
      for (const bool backward : {false, true}) {
        for (const uint32_t sms : {1u, 78u, 132u}) {
          SCOPED_TRACE(testing::Message() << rows << " x " << cols << " on " << sms << (backward ? " backward" : ""));
          for (const bool by_rows : {false, true}) expect_each_once(share_tiles(rows, cols, sms, by_rows, backward));
          expect_each_once(share_resident_tiles(rows, cols, sms, backward));
        }
      }
    }
  }
}

TEST(GemmTiles, AResidentBlockKeepsItsColumn) {
  for (const uint32_t rows : kSizes) {
    for (const uint32_t cols : kSizes) {
      for (const bool backward : {false, true}) {
        const GemmTiles t = share_resident_tiles(rows, cols, 132, backward);
        EXPECT_LE(t.blocks, std::max(cols, 132u));
        walk(t, [&](uint32_t block, uint32_t, uint32_t col) {
          EXPECT_EQ(col, t.col(block)) << rows << " x " << cols << ", block " << block;
        });
      }
    }
  }
  EXPECT_EQ(share_resident_tiles(99, 12, 132, false).blocks, 132u) << "eleven for each column";
  EXPECT_EQ(share_resident_tiles(99, 16, 132, false).blocks, 128u);
  EXPECT_EQ(share_resident_tiles(9, 67, 132, false).blocks, 67u) << "no SMs are left for two of each";
  EXPECT_EQ(share_resident_tiles(2, 12, 132, false).blocks, 24u) << "no more than tiles";
}

TEST(GemmTiles, BackwardBeginsWithTheLastRows) {
  for (const GemmTiles& t : {share_tiles(99, 12, 132, true, true), share_resident_tiles(99, 12, 132, true)}) {
    EXPECT_EQ(t.row(0), 98u);
    EXPECT_EQ(t.row(t.count - 1), 0u);
  }
}

}  // namespace
}  // namespace tessera::sm90
