// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/gated_columns.h"

#include <gtest/gtest.h>

#include <vector>

#include "archs/sm90/swizzle.h"

namespace tessera::sm90 {
namespace {

// TMA writes a box of axes (stored row of eight, half, group): each row of w, as it is stored, arrives at
// the column of sums that is taken for it.
TEST(GatedColumns, AreTheRowsThatABoxBrings) {
  for (const int cols : {8, 32, 48, 64, 96, 136, 4096}) {
    const int half_rows = static_cast<int>(stored_rows32(Layout::kHalves32, 2 * cols)) / 2;
    std::vector<int> times(static_cast<size_t>(2 * cols), 0);
    int sum_column = 0;
    for (int group = 0; group < half_rows / kGateGroup; ++group) {
      for (int half = 0; half < 2; ++half) {
        for (int row = 0; row < kGateGroup; ++row, ++sum_column) {
          const GatedColumn c = gated_column(sum_column);
          ASSERT_EQ(c.half, half);
          if (c.column >= cols) continue;
          ++times[static_cast<size_t>(half * cols + c.column)];
          ASSERT_EQ(layout_index(Layout::kHalves32, half * cols + c.column, 0, 2 * cols, 1),
                    half * half_rows + group * kGateGroup + row)
              << cols << " " << sum_column;
        }
      }
    }
    for (const int t : times) ASSERT_EQ(t, 1);
  }
}

// Group 2 j of a thread's sums holds the gate of what its group 2 j + 1 holds; of 64 columns of sums a thread has eight
// neighbouring results.
TEST(GatedColumns, MeetInOneThreadAndAreNeighbours) {
  for (int thread = 0; thread < 128; ++thread) {
    for (int pair = 0; pair < 12; ++pair) {
      for (int c = 0; c < 2; ++c) {
        const GatedColumn gate = gated_column(pair * 16 + result_col(thread) + c),
                          up = gated_column(pair * 16 + 8 + result_col(thread) + c);
        EXPECT_EQ(gate.half, 0);
        EXPECT_EQ(up.half, 1);
        EXPECT_EQ(gate.column, up.column);
        EXPECT_EQ(gate.column, pair / 4 * 32 + thread % 4 * 8 + pair % 4 * 2 + c);
      }
    }
  }
}

// Without a gate a thread has eight neighbouring results of 32 columns of sums.
TEST(Pairs32, MakesNeighboursOfAThreadsResults) {
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 8; ++i) EXPECT_EQ(turn_pairs32(i / 2 * 8 + result_col(thread) + i % 2), thread % 4 * 8 + i);
  }
  for (int row = 0; row < 256; ++row) EXPECT_EQ(turn_pairs32(turn_pairs32(row)), row);
}

}  // namespace
}  // namespace tessera::sm90
