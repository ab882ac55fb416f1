// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/size_ranges.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Numbers = std::vector<int64_t>;

TEST(SizeRanges, BothEndsAndThePowersOfTwoBetween) {
  EXPECT_EQ(numbers_from(16, 512), (Numbers{16, 32, 64, 128, 256, 512}));
  EXPECT_EQ(numbers_from(1, 8), (Numbers{1, 2, 4, 8}));
  EXPECT_EQ(numbers_from(1, 1), (Numbers{1}));
  EXPECT_EQ(numbers_from(5, 7), (Numbers{5, 7}));
  EXPECT_EQ(numbers_from(5, 8), (Numbers{5, 8}));
  EXPECT_EQ(numbers_from(3, 20), (Numbers{3, 4, 8, 16, 20}));
  EXPECT_EQ(numbers_from(1, int64_t{1} << 40).size(), 41u);
  EXPECT_EQ(numbers_from(INT64_MAX - 1, INT64_MAX), (Numbers{INT64_MAX - 1, INT64_MAX}));
}

const std::string kModel = std::string(TS_SOURCE_DIR) + "/tests/data/models/bert_ts17.onnx";

TEST(SizeRanges, ASizeIsCalledWhatTheModelCallsItsAxis) {
  const auto said = name_sizes(kModel, {{"input_ids", {{1, 2}, {4, 8}}}, {"attention_mask", {{1, 2}, {4, 8}}}});
  ASSERT_TRUE(said.ok()) << said.status().message();
  EXPECT_EQ(said->batches, (Numbers{1, 2}));
  ASSERT_EQ(said->sizes.size(), 1u);
  EXPECT_EQ(said->sizes[0].name, "sequence");
  EXPECT_EQ(said->sizes[0].numbers, (Numbers{4, 8}));
  EXPECT_EQ(said->shapes, (std::map<std::string, Shape>{{"input_ids", {0, 8}}, {"attention_mask", {0, 8}}}));
}

TEST(SizeRanges, WhatContradictsItself) {
  const auto refusal = [](const std::map<std::string, RangedShape>& shapes) {
    return name_sizes(kModel, shapes).status().message();
  };
  EXPECT_NE(refusal({{"input_ids", {{1}, {4, 8}}}, {"attention_mask", {{1}, {8}}}})
                .find("says 8 for the axis 'sequence' of the model, --shape input_ids says 2 numbers from 4 to 8"),
            std::string::npos)
      << refusal({{"input_ids", {{1}, {4, 8}}}, {"attention_mask", {{1}, {8}}}});
  EXPECT_NE(refusal({{"input_ids", {{1, 2}, {4, 8}}}, {"attention_mask", {{1}, {4, 8}}}}).find("the batch"),
            std::string::npos);
  EXPECT_NE(refusal({{"ids", {{1}, {4, 8}}}}).find("--shape ids: the model has no such input; it has 'input_ids'"),
            std::string::npos);
  EXPECT_NE(refusal({{"input_ids", {{4, 8}}}}).find("1 axes where the model has [batch,sequence]"), std::string::npos);
}

}  // namespace
}  // namespace tessera
