// SPDX-License-Identifier: Apache-2.0
#include "assemble/plan_case.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::vector<std::string> names_of(const std::vector<PlanCase>& cases) {
  std::vector<std::string> names;
  for (const PlanCase& c : cases) names.push_back(c.name());
  return names;
}

TEST(PlanCase, WithoutBucketsThereIsOnePerBatch) {
  EXPECT_EQ(names_of(cases_of({}, {})), std::vector<std::string>{"batch1"});
  EXPECT_EQ(names_of(cases_of({8, 1, 8}, {})), (std::vector<std::string>{"batch1", "batch8"}));
}

TEST(PlanCase, TheLargestBucketComesFirst) {
  const auto all = cases_of({1}, {{"views", {1, 3}}, {"prompt", {48, 200}}});
  EXPECT_EQ(names_of(all), (std::vector<std::string>{"prompt200.views3.batch1", "prompt200.views1.batch1",
                                                     "prompt48.views3.batch1", "prompt48.views1.batch1"}));
  EXPECT_EQ(all[0].sizes, (std::map<std::string, int64_t>{{"views", 3}, {"prompt", 200}}));
  EXPECT_EQ(names_of(cases_of({2, 1}, {{"views", {1, 2}}})),
            (std::vector<std::string>{"views2.batch1", "views2.batch2", "views1.batch1", "views1.batch2"}));
}

TEST(PlanCase, ModelsCallAxesAnything) {
  EXPECT_EQ(names_of(cases_of({1}, {{"s0", {64}}, {"x.1", {4}}})), std::vector<std::string>{"s0_64.x_1_4.batch1"});
  EXPECT_EQ(names_of(cases_of({1}, {{"golden.n", {64}}})), std::vector<std::string>{"golden_n64.batch1"});
}

}  // namespace
}  // namespace tessera
