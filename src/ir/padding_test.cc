// SPDX-License-Identifier: Apache-2.0
#include "ir/padding.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using List = std::vector<int64_t>;

TEST(Padding, PlacesAreWrittenAndReadBack) {
  const PaddedPlaces heads = padded_groups(3, 2, 4);
  EXPECT_EQ(heads, (PaddedPlaces{0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1}));
  EXPECT_EQ(written(heads), (List{3, 2, 4}));
  Attrs attrs;
  attrs.set(kPaddedCols, written(heads));
  EXPECT_EQ(read_places(attrs, kPaddedCols, 6, 12), heads);
  EXPECT_FALSE(read_places(attrs, kPaddedRows, 6, 12)) << "rows are not padded";
  EXPECT_FALSE(read_places(attrs, kPaddedCols, 6, 16));
  EXPECT_FALSE(read_places(attrs, kPaddedCols, 5, 12));
}

TEST(Padding, TwoPaddingsAreOne) {
  const PaddedPlaces both = padded_again(padded_groups(3, 2, 4), padded_groups(1, 12, 16));
  EXPECT_EQ(written(both), (List{2, 2, 4, 1, 2, 8}));
  Attrs attrs;
  attrs.set(kPaddedRows, written(both));
  EXPECT_EQ(read_places(attrs, kPaddedRows, 6, 16), both);
}

TEST(Padding, AFileMaySayAnything) {
  for (const List& list : {List{}, List{1}, List{1, 2}, List{0, 2, 4}, List{-1, 2, 4}, List{1, -2, 4}, List{1, 5, 4},
                           List{1, 0, 0}, List{int64_t{1} << 62, 2, 4}, List{1, 2, int64_t{1} << 62},
                           List{int64_t{1} << 62, 0, int64_t{1} << 62}, List{4, 2, 4}}) {
    Attrs attrs;
    attrs.set(kPaddedRows, list);
    EXPECT_FALSE(read_places(attrs, kPaddedRows, 6, 12)) << list.size();
  }
}

TEST(Padding, AWeightHasItsNumbersWhereItSays) {
  Attrs attrs;
  attrs.set(kPaddedRows, List{1, 2, 3});
  attrs.set(kPaddedCols, List{2, 1, 2});
  const std::vector<double> w = {1, 2, 3, 4};
  EXPECT_EQ(padded_weight(attrs, w, {2, 2}, {3, 4}), (std::vector<double>{1, 0, 2, 0, 3, 0, 4, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(padded_weight(attrs, w, {2, 2}, {4, 4}).empty());
  EXPECT_EQ(padded_weight({}, w, {2, 2}, {2, 2}), w);
}

// Two groups of one channel and two rows each, over two taps, as one.
TEST(Padding, MergedGroupsHaveZerosAtTheOthersChannels) {
  Attrs attrs;
  attrs.set(kMergedGroups, List{2, 2});
  const std::vector<double> w = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<double> want = {1, 0, 2, 0, 3, 0, 4, 0, 0, 5, 0, 6, 0, 7, 0, 8};
  EXPECT_EQ(padded_weight(attrs, w, {4, 2}, {4, 4}), want);
  attrs.set("groups", int64_t{2});  // none is merged
  EXPECT_EQ(padded_weight(attrs, w, {4, 2}, {4, 2}), w);
  attrs.set("groups", int64_t{1});
  EXPECT_TRUE(padded_weight(attrs, w, {4, 2}, {2, 4}).empty()) << "a smaller weight";
  EXPECT_TRUE(padded_weight(attrs, w, {4, 2}, {4, 3}).empty());
  for (const List& list :
       {List{2}, List{0, 2}, List{2, 0}, List{-2, 2}, List{3, 2}, List{2, 3}, List{4, 2}, List{int64_t{1} << 62, 2}}) {
    attrs.set(kMergedGroups, list);
    EXPECT_TRUE(padded_weight(attrs, w, {4, 2}, {4, 4}).empty()) << list[0];
  }
}

}  // namespace
}  // namespace tessera
