// SPDX-License-Identifier: Apache-2.0
#include "ir/shape.h"

#include <gtest/gtest.h>

#include <random>

namespace tessera {
namespace {

// Addresses of all elements in row order.
std::vector<int64_t> addresses(const Shape& shape, const Shape& strides) {
  std::vector<int64_t> out{0};
  for (size_t a = 0; a < shape.size(); ++a) {
    std::vector<int64_t> next;
    for (int64_t base : out) {
      for (int64_t i = 0; i < shape[a]; ++i) next.push_back(base + i * strides[a]);
    }
    out = std::move(next);
  }
  return out;
}

TEST(Shape, ReshapeStridesAddressTheSameElementsInTheSameOrder) {
  std::mt19937 random(3);
  int possible = 0;
  for (int round = 0; round < 3000; ++round) {
    // A permuted dense tensor, then a random regrouping of its 24..36 elements.
    Shape dense;
    for (int i = 0; i < 4; ++i) dense.push_back(static_cast<int64_t>(1 + random() % 3));
    const Shape strides = dense_strides(dense);
    std::vector<size_t> perm = {0, 1, 2, 3};
    if (round % 3 != 0) std::shuffle(perm.begin(), perm.end(), random);
    Shape from, from_strides;
    for (size_t p : perm) {
      from.push_back(dense[p]);
      from_strides.push_back(strides[p]);
    }
    Shape shape;
    int64_t rest = elements(dense);
    while (rest > 1) {
      int64_t d = 1 + static_cast<int64_t>(random() % static_cast<unsigned>(rest));
      while (rest % d != 0) ++d;
      shape.push_back(d);
      rest /= d;
    }
    if (random() % 2) shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(random() % (shape.size() + 1)), 1);
    Shape result;
    if (!reshape_strides(from, from_strides, shape, &result)) continue;
    ++possible;
    ASSERT_EQ(addresses(shape, result), addresses(from, from_strides)) << to_string(from) << " -> " << to_string(shape);
  }
  EXPECT_GT(possible, 1000);
}

TEST(Shape, ReshapeRefusesWhatOnlyACopyCanDo) {
  Shape result;
  EXPECT_FALSE(reshape_strides({3, 2}, {1, 3}, {6}, &result));  // a transpose cannot be flattened
  EXPECT_TRUE(reshape_strides({2, 14, 14, 8}, {14 * 14 * 8, 14 * 8, 8, 1}, {2, 196, 8}, &result));
  EXPECT_EQ(result, (Shape{1568, 8, 1}));
}

TEST(Shape, RowsOfAClassTokenSlice) {
  const RowView v = as_rows({4, 1, 64}, {17 * 64, 64, 1});
  EXPECT_TRUE(v.uniform);
  EXPECT_EQ(v.rows, 4);
  EXPECT_EQ(v.row_stride, 17 * 64);
  EXPECT_FALSE(as_rows({4, 3, 64}, {17 * 64, 64, 1}).uniform);
}

TEST(Shape, DenseIgnoresAxesOfSizeOne) {
  EXPECT_TRUE(is_dense({4, 1, 8}, {8, 999, 1}));
  EXPECT_FALSE(is_dense({4, 2, 8}, {8, 999, 1}));
}

}  // namespace
}  // namespace tessera
