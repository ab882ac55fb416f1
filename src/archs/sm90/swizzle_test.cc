// SPDX-License-Identifier: Apache-2.0
#include "archs/sm90/swizzle.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera::sm90 {
namespace {

TEST(Swizzle, IsAPermutationOfTheTile) {
  std::set<uint32_t> seen;
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t byte = 0; byte < 128; ++byte) seen.insert(swizzled_offset(row, byte));
  }
  EXPECT_EQ(seen.size(), 64u * 128u);
  EXPECT_EQ(*seen.rbegin(), 64u * 128u - 1);
}

TEST(Swizzle, EightRowsOfOneChunkTouchAllBanks) {
  for (uint32_t chunk = 0; chunk < 8; ++chunk) {
    std::set<uint32_t> banks;
    for (uint32_t row = 0; row < 8; ++row) {
      for (uint32_t lane = 0; lane < 4; ++lane) banks.insert(swizzled_offset(row, chunk * 16 + lane * 4) / 4 % 32);
    }
    EXPECT_EQ(banks.size(), 32u) << "chunk " << chunk;
  }
}

TEST(Swizzle, ChunksStayWhole) {
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t byte = 0; byte < 128; ++byte) {
      EXPECT_EQ(swizzled_offset(row, byte) / 16, swizzled_offset(row, byte & ~15u) / 16);
      EXPECT_EQ(swizzled_offset(row, byte) / 128, row);
    }
  }
}

TEST(Swizzle, ShorterRowsShareTheLinesPattern) {
  // The hardware exchanges address bits 4-5 with 7-8 (64-byte rows) and bit 4 with 7 (32-byte rows).
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t byte = 0; byte < 64; ++byte) {
      const uint32_t plain = row * 64 + byte;
      EXPECT_EQ(swizzled_offset<64>(row, byte), plain ^ ((plain >> 7 & 3) << 4));
    }
    for (uint32_t byte = 0; byte < 32; ++byte) {
      const uint32_t plain = row * 32 + byte;
      EXPECT_EQ(swizzled_offset<32>(row, byte), plain ^ ((plain >> 7 & 1) << 4));
    }
  }
}

TEST(Descriptor, FieldsAreWhereTheHardwareReadsThem) {
  const uint64_t d = operand_descriptor(0x1a400);
  EXPECT_EQ(d & 0x3fff, 0x1a40u);
  EXPECT_EQ(d >> 32 & 0x3fff, 64u) << "eight rows of 128 bytes";
  EXPECT_EQ(d >> 62, 1u) << "128-byte swizzle";
  EXPECT_EQ(d >> 49 & 7, 0u) << "tiles start at multiples of 1024, so there is no base offset";
  EXPECT_EQ(operand_descriptor<64>(0) >> 62, 2u);
  EXPECT_EQ(operand_descriptor<64>(0) >> 32 & 0x3fff, 32u) << "eight rows of 64 bytes";
  EXPECT_EQ(kDescriptorStepK, 2u);
  EXPECT_EQ(kDescriptorStep64Rows, 512u);
}

TEST(Results, EveryElementHasOneHolder) {
  std::set<std::pair<int, int>> seen;
  for (int t = 0; t < 128; ++t) {
    for (int j = 0; j < 16; ++j) {
      for (int i = 0; i < 4; ++i) seen.insert({result_row(t) + i / 2 * 8, j * 8 + result_col(t) + i % 2});
    }
  }
  EXPECT_EQ(seen.size(), 64u * 128u);
  EXPECT_EQ(seen.rbegin()->first, 63);
}

}  // namespace
}  // namespace tessera::sm90
