// SPDX-License-Identifier: Apache-2.0
#include "tiles/gated_columns.h"

#include <gtest/gtest.h>

#include <vector>

#include "archs/sm90/swizzle.h"

namespace tessera::sm90 {
namespace {

// Rows of w in the order in which the copy engine writes a box of axes (row of eight, half, group), from group `first` on; -1 where it fills in zeros.
std::vector<int> box_rows(int cols, int first, int groups) {
  std::vector<int> rows;
  for (int group = first; group < first + groups; ++group) {
    for (int half = 0; half < 2; ++half) {
      for (int row = 0; row < 8; ++row) rows.push_back(group < cols / 8 ? half * cols + group * 8 + row : -1);
    }
  }
  return rows;
}

TEST(GatedColumns, AreTheRowsThatABoxBrings) {
  for (const int cols : {8, 48, 64, 96, 136, 4096}) {
    for (const int tile : {128, 192}) {
      for (int n = 0; n < 2 * cols; n += tile) {
        const std::vector<int> rows = box_rows(cols, n / kGatePair, tile / kGatePair);
        ASSERT_EQ(rows.size(), static_cast<size_t>(tile));
        for (int i = 0; i < tile; ++i) {
          const bool exists = n + i < 2 * cols;
          ASSERT_EQ(rows[static_cast<size_t>(i)], exists ? gated_row(n + i, 2 * cols) : -1) << cols << " " << n + i;
        }
      }
    }
  }
}

// Group 2 j of a thread's sums holds the gate of what its group 2 j + 1 holds; results of 64 columns of sums are 32 columns, eight for each pair of groups.
TEST(GatedColumns, MeetInOneThread) {
  for (int thread = 0; thread < 128; ++thread) {
    for (int pair = 0; pair < 4; ++pair) {
      for (int c = 0; c < 2; ++c) {
        const GatedColumn gate = gated_column(pair * 16 + result_col(thread) + c), up = gated_column(pair * 16 + 8 + result_col(thread) + c);
        EXPECT_EQ(gate.half, 0);
        EXPECT_EQ(up.half, 1);
        EXPECT_EQ(gate.column, up.column);
        EXPECT_EQ(gate.column, pair * 8 + result_col(thread) + c);
      }
    }
  }
}

TEST(GatedColumns, FillABoxOfResultsOnce) {
  const auto fill = []<int kBytes>() {
    std::vector<int> seen(64 * 32 * kBytes, 0);
    for (int thread = 0; thread < 128; ++thread) {
      for (int pair = 0; pair < 4; ++pair) {
        for (int h = 0; h < 2; ++h) {
          const uint32_t at = swizzled_offset<32 * kBytes>(static_cast<uint32_t>(result_row(thread) + h * 8), static_cast<uint32_t>((pair * 8 + result_col(thread)) * kBytes));
          for (uint32_t b = 0; b < 2 * kBytes; ++b) ++seen[at + b];
        }
      }
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
  };
  fill.operator()<1>();
  fill.operator()<2>();
}

}  // namespace
}  // namespace tessera::sm90
