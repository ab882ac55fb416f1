// SPDX-License-Identifier: Apache-2.0
#include "tiles/strided.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(MergeAxes, KeepsWhatDoesNotFitTogether) {
  Shape shape = {2, 1, 3, 4};
  std::vector<Shape> strides = {{12, 99, 4, 1}, {0, 0, 4, 1}};
  merge_axes(shape, strides);
  EXPECT_EQ(shape, Shape({2, 12}));
  EXPECT_EQ(strides[0], Shape({12, 1}));
  EXPECT_EQ(strides[1], Shape({0, 1}));
}

TEST(MergeAxes, RepeatedAxesMerge) {
  Shape shape = {5, 7};
  std::vector<Shape> strides = {{0, 0}};
  merge_axes(shape, strides);
  EXPECT_EQ(shape, Shape({35}));
  EXPECT_EQ(strides[0], Shape({0}));
}

TEST(MergeAxes, NothingIsOneElement) {
  for (Shape shape : {Shape{}, Shape{1, 1}}) {
    std::vector<Shape> strides = {Shape(shape.size(), 5)};
    merge_axes(shape, strides);
    EXPECT_EQ(shape, Shape({1}));
    EXPECT_EQ(strides[0].size(), 1u);
  }
}

TEST(BroadcastStrides, AlignsAtTheLastAxis) {
  EXPECT_EQ(broadcast_strides({3, 1}, {1, 1}, {2, 3, 4}), Shape({0, 1, 0}));
  EXPECT_EQ(broadcast_strides({}, {}, {2}), Shape({0}));
}

TEST(StridedRuns, VisitsEveryRunFromAnyStart) {
  const Shape shape = {2, 3, 4, 5};
  const std::vector<Shape> strides = {{60, 20, 5, 1}, {1, 2, 6, 24}, {0, 7, 0, 0}};
  for (int64_t start : {0, 1, 5, 23}) {
    StridedRuns runs(shape, strides);
    EXPECT_EQ(runs.count(), 24);
    EXPECT_EQ(runs.length(), 5);
    runs.seek(start);
    for (int64_t run = start; run < runs.count(); ++run, runs.next()) {
      const int64_t a = run / 12, b = run / 4 % 3, c = run % 4;
      for (size_t o = 0; o < strides.size(); ++o) {
        ASSERT_EQ(runs.offset(o), a * strides[o][0] + b * strides[o][1] + c * strides[o][2])
            << "operand " << o << " run " << run;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
