// SPDX-License-Identifier: Apache-2.0
#include "tiles/valid_keys.h"

#include <gtest/gtest.h>

#include <limits>

namespace tessera {
namespace {

TEST(ValidKeys, StayInsideTheirMemoryWhateverTheNumber) {
  for (const int keys : {1, 2, 7, 300}) {
    for (int fresh = 0; fresh <= keys; ++fresh) {
      for (const int length :
           {std::numeric_limits<int>::min(), -1, 0, 1, keys - fresh, keys, keys + 1, std::numeric_limits<int>::max()}) {
        const ValidKeys<int> v = valid_keys(length, keys, fresh);
        EXPECT_GE(v.old, 0);
        EXPECT_EQ(v.all, v.old + fresh);
        EXPECT_LE(v.all, keys);
        for (int key = 0; key < v.all; ++key) {
          EXPECT_GE(v.bias_column(key), key);
          EXPECT_LT(v.bias_column(key), keys);
        }
        for (const int query : {0, 1, 5}) {
          EXPECT_GE(v.seen_by(query, 6, true), 0);
          EXPECT_LE(v.seen_by(query, 6, true), v.all);
          EXPECT_EQ(v.seen_by(query, 6, false), v.all);
        }
      }
    }
  }
}

TEST(ValidKeys, NewOnesLieBehindTheOldAndLastInTheBias) {
  const ValidKeys<int> v = valid_keys(3, 10, 2);  // three old keys, two new ones, memory for ten
  EXPECT_EQ(v.all, 5);
  EXPECT_EQ(v.bias_column(2), 2);
  EXPECT_EQ(v.bias_column(3), 8);
  EXPECT_EQ(v.bias_column(4), 9);
  EXPECT_EQ(v.seen_by(0, 2, true), 4);  // the old ones and itself
  EXPECT_EQ(v.seen_by(1, 2, true), 5);
  EXPECT_EQ(v.seen_by(0, 9, true), 0);
  EXPECT_EQ(v.seen_by(8, 9, true), 5);
}

TEST(ValidKeys, AllOfThemWithoutANumber) {
  const ValidKeys<int64_t> v = all_keys(int64_t{7});
  EXPECT_EQ(v.all, 7);
  EXPECT_EQ(v.bias_column(6), 6);
  EXPECT_EQ(v.seen_by(0, 7, true), 1);
  EXPECT_EQ(v.seen_by(6, 7, true), 7);
}

}  // namespace
}  // namespace tessera
