// SPDX-License-Identifier: Apache-2.0
#include "golden/closeness.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Closeness, OfVectorsSampleBySample) {
  const std::vector<double> want = {1, 0, 0, 2}, got = {2, 0, 2, 2};
  const Closeness c = compare(got, want, 2);
  EXPECT_NEAR(c.cosine_mean, (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(c.cosine_worst, std::sqrt(0.5), 1e-12);
  EXPECT_EQ(c.worst_sample, 1);
  EXPECT_NEAR(c.relative_l2, 1, 1e-12);
  EXPECT_FALSE(c.alone);
}

// Each number by itself has a cosine of 1 or -1, whatever it is.
TEST(Closeness, SingleNumbersOfSamplesAreOneVector) {
  const std::vector<double> want = {3, 4, 0.01}, got = {3, 3, -0.01};
  const Closeness c = compare(got, want, 3);
  EXPECT_NEAR(c.cosine_mean, (9 + 12 - 1e-4) / std::sqrt(25.0001 * 18.0001), 1e-12);
  EXPECT_EQ(c.cosine_worst, c.cosine_mean);
  EXPECT_FALSE(c.alone);
  // Twice as large is not seen by a cosine, but by the distance.
  const std::vector<double> twice = {6, 8, 0.02};
  EXPECT_NEAR(compare(twice, want, 3).relative_l2, 1, 1e-12);
}

TEST(Closeness, OneNumberIsJudgedByNoCosine) {
  const std::vector<double> want = {1e-3}, got = {-1e-3};
  EXPECT_TRUE(compare(got, want, 1).alone);
  Closeness more = compare(got, want, 1);
  more.add(compare(want, want, 1));
  EXPECT_FALSE(more.alone);
}

}  // namespace
}  // namespace tessera
