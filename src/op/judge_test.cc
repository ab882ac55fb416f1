// SPDX-License-Identifier: Apache-2.0
#include "op/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();

// NaN, -Inf, 2, a sum that f32 does not hold, and numbers.
void odd_numbers(const Problem&, size_t i, std::vector<double>& v) {
  v[0] = i == 0 ? NAN : 1, v[1] = i == 0 ? -INFINITY : 1, v[2] = 1, v[3] = kMost;
}

class JudgeTest : public ::testing::Test {
 protected:
  const Variant& variant_ = *find_variant("map/cpu");
  const Problem problem_ =
      make_problem("map", {dense_operand({8}, Element::f32), dense_operand({8}, Element::f32)}, {{"fn", "add"}});
  const Case case_ = make_case(problem_, 3, Values::kRandom, odd_numbers);
  const Judge judge_ = judge_of(variant_, case_);

  Judgement with(size_t at, float number) const {
    auto got = run_on(variant_, case_);
    EXPECT_TRUE(got.ok());
    reinterpret_cast<float*>((*got)[0].data.data())[at] = number;
    const TensorView view = (*got)[0].view();
    return judge_.of({&view, 1});
  }
  float right(size_t at) const { return reinterpret_cast<const float*>((*run_on(variant_, case_))[0].data.data())[at]; }
};

TEST_F(JudgeTest, TakesWhatTheKernelGives) {
  const Judgement j = with(2, 2.0f);
  EXPECT_TRUE(j.ok());
  EXPECT_EQ(j.results, 8);
  EXPECT_EQ(j.differ, 0);
  EXPECT_TRUE(std::isnan(right(0)));
  EXPECT_EQ(right(1), -INFINITY);
  EXPECT_EQ(right(3), INFINITY);
}

TEST_F(JudgeTest, NanIsNoNumberAndNoNumberIsNan) {
  EXPECT_FALSE(with(0, 0.0f).ok());
  EXPECT_FALSE(with(2, NAN).ok());
}

TEST_F(JudgeTest, InfinitiesAreWhatTheyAre) {
  EXPECT_FALSE(with(1, -kMost).ok());
  EXPECT_FALSE(with(1, INFINITY).ok());
  EXPECT_FALSE(with(3, kMost).ok());
  EXPECT_FALSE(with(2, INFINITY).ok());
}

TEST_F(JudgeTest, ANumberThatIsOffIsCounted) {
  const Judgement j = with(2, 2.0f + 0x1p-10f);
  EXPECT_FALSE(j.ok());
  EXPECT_EQ(j.at, 2);
  EXPECT_EQ(j.differ, 1);
  EXPECT_GT(j.share, 1);
}

}  // namespace
}  // namespace tessera
