// SPDX-License-Identifier: Apache-2.0
#include "ir/region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tessera {
namespace {

// Where each element of the region lies, in row order.
std::vector<int64_t> addresses(const Region& r) {
  std::vector<int64_t> out;
  Shape index(r.shape.size(), 0);
  const int64_t n = elements(r.shape);
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = r.offset, rest = i;
    for (size_t a = r.shape.size(); a-- > 0; rest /= r.shape[a]) at += rest % r.shape[a] * r.strides[a];
    out.push_back(at);
  }
  return out;
}

struct Dice {
  std::mt19937_64 bits;
  int64_t roll(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
};

// A few random steps away from `r`; each is checked against the addresses it must give.
Region wander(Dice& dice, Region r, int steps) {
  for (int s = 0; s < steps; ++s) {
    const std::vector<int64_t> before = addresses(r);
    const size_t rank = r.shape.size();
    switch (dice.roll(4)) {
      case 0: {  // transpose
        std::vector<int64_t> perm(rank);
        std::iota(perm.begin(), perm.end(), 0);
        std::shuffle(perm.begin(), perm.end(), dice.bits);
        const Region next = permuted(r, perm);
        std::vector<int64_t> a = before, b = addresses(next);
        std::sort(a.begin(), a.end());
        std::sort(b.begin(), b.end());
        EXPECT_EQ(a, b);
        r = next;
        break;
      }
      case 1: {  // slice
        if (rank == 0) break;
        const size_t axis = static_cast<size_t>(dice.roll(static_cast<int64_t>(rank)));
        const int64_t start = dice.roll(r.shape[axis]), step = 1 + dice.roll(2);
        const int64_t count = 1 + dice.roll((r.shape[axis] - 1 - start) / step + 1);
        r = sliced(r, axis, start, step, count);
        break;
      }
      case 2: {  // split or merge axes
        Shape shape;
        if (dice.roll(2) == 0) {
          for (int64_t n : r.shape) {
            const int64_t factor = n % 2 == 0 ? 2 : n % 3 == 0 ? 3 : 1;
            shape.insert(shape.end(), {factor, n / factor});
          }
        } else {
          for (size_t i = 0; i < rank; i += 2) shape.push_back(i + 1 < rank ? r.shape[i] * r.shape[i + 1] : r.shape[i]);
        }
        if (const auto next = reshaped(r, shape)) {
          EXPECT_EQ(addresses(*next), before) << "reshaping keeps the order";
          r = *next;
        }
        break;
      }
      default: {  // repeat
        if (rank > 5 || elements(r.shape) > 500) break;
        Shape shape = r.shape;
        for (int64_t& n : shape) n = n == 1 ? 1 + dice.roll(3) : n;
        shape.insert(shape.begin(), 1 + dice.roll(2));
        r = expanded(r, shape);
      }
    }
  }
  return r;
}

TEST(Region, ComposedReadsTheSameElements) {
  int possible = 0, refused = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Dice dice{std::mt19937_64(seed)};
    const Shape storage = {1 + dice.roll(4), 1 + dice.roll(6), 1 + dice.roll(4), 1 + dice.roll(6)};
    const Region inner = wander(dice, dense_region(storage), 3);
    ASSERT_TRUE(in_range(inner, elements(storage)));
    const Region outer = wander(dice, dense_region(inner.shape), 3);
    ASSERT_TRUE(in_range(outer, elements(inner.shape)));
    const auto straight = composed(inner, outer);
    (straight ? possible : refused) += 1;
    if (!straight) continue;
    const std::vector<int64_t> through = addresses(inner);
    std::vector<int64_t> want;
    for (int64_t at : addresses(outer)) want.push_back(through[static_cast<size_t>(at)]);
    ASSERT_EQ(addresses(*straight), want) << "seed " << seed;
    ASSERT_TRUE(in_range(*straight, elements(storage)));
  }
  EXPECT_GT(possible, 1500) << "most are possible";
  EXPECT_GT(refused, 50) << "some are not";
}

TEST(Region, ComposedFindsWhatStridesCanSay) {
  // Heads taken out of [2, 5, 24], copied, merged into one axis with the batch, transposed and split again: k^T as one
  // exporter writes it.
  const Region heads{{2, 3, 5, 8}, {120, 8, 24, 1}, 0};
  const Region outer{{2, 3, 8, 5}, {120, 40, 1, 8}, 0};
  EXPECT_EQ(composed(heads, outer), (Region{{2, 3, 8, 5}, {120, 8, 1, 24}, 0}));
  EXPECT_EQ(composed(heads, dense_region({6, 5, 8})), std::nullopt) << "batch and heads cannot be one axis";
  const Region row{{5}, {24}, 48};
  EXPECT_EQ(composed(row, Region{{2, 2}, {2, 1}, 1}), (Region{{2, 2}, {48, 24}, 72}));
}

TEST(Region, RangesDoNotOverflow) {
  constexpr int64_t kHuge = INT64_MAX;
  EXPECT_FALSE(in_range({{kHuge, kHuge}, {kHuge, kHuge}, 0}, 100));
  EXPECT_FALSE(in_range({{2}, {-1}, 0}, 100));
  EXPECT_TRUE(in_range({{2}, {-1}, 1}, 100));
  EXPECT_FALSE(in_range({{100}, {1}, 1}, 100));
  EXPECT_FALSE(in_range({{}, {}, 100}, 100));
  EXPECT_TRUE(in_range({{0, 5}, {1, 1}, 0}, 0));
  EXPECT_FALSE(in_range({{2, 2}, {1}, 0}, 100)) << "a stride is missing";
  EXPECT_EQ(checked_elements({kHuge, kHuge}, kMaxElements), std::nullopt);
  EXPECT_EQ(checked_elements({kHuge, 0}, kMaxElements), std::nullopt);
  EXPECT_EQ(checked_elements({1 << 20, 0}, kMaxElements), 0);
  EXPECT_EQ(checked_elements({-1}, kMaxElements), std::nullopt);
  EXPECT_EQ(checked_elements({1 << 20, 1 << 20}, kMaxElements), kMaxElements);
  EXPECT_EQ(checked_elements({}, kMaxElements), 1);
}

}  // namespace
}  // namespace tessera
