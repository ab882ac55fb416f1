// SPDX-License-Identifier: Apache-2.0
// --precision auto: candidates are those that the target runs, the cosine that was asked for is reached, and what the
// user allows stays.
#include "assemble/choose_types.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"
#include "testing/two_mlps.h"

namespace tessera {
namespace {

class ChooseTypesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto parsed = parse_graph(kTwoMlps);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    graph_ = std::move(parsed).value();
    options_.quiet = true;
    lowering_.types.precision = kAuto;
  }
  Result<AutoChoice> choose(Arch target, double min_cosine) {
    options_.target = target, options_.min_cosine = min_cosine;
    return choose_types(graph_, options_, {.samples = 6}, lowering_);  // seeded random inputs
  }
  // The layers' precisions, each once.
  static std::set<std::string> precisions(const AutoChoice& choice) {
    std::set<std::string> all;
    for (const AutoLayer& l : choice.layers) all.insert(l.precision);
    return all;
  }

  Graph graph_;
  BuildOptions options_;
  LowerOptions lowering_;
};

TEST_F(ChooseTypesTest, ReachesWhatIsAskedAtTheLeastCost) {
  const auto cheapest = choose(Arch::cpu, 0.9);
  ASSERT_TRUE(cheapest.ok()) << cheapest.status().message();
  EXPECT_EQ(cheapest->layers.size(), 4u) << "the layers of the blocks; embedding and head stay";
  EXPECT_EQ(precisions(*cheapest), std::set<std::string>{"nvfp4"});
  double bytes = cheapest->bytes;
  const double reached = cheapest->reached.cosine_mean;
  for (const double lost : {0.5, 0.05}) {  // of what nvfp4 loses
    const double more = 1 - lost * (1 - reached);
    const auto choice = choose(Arch::cpu, more);
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    EXPECT_GE(choice->reached.cosine_mean, more);
    EXPECT_GT(choice->bytes, bytes) << lost;
    EXPECT_LT(choice->bytes, choice->bytes_of_carrier) << lost;
    bytes = choice->bytes;
  }
}

TEST_F(ChooseTypesTest, ChoosesAmongWhatTheTargetRuns) {
  const auto choice = choose(Arch::sm90, 0.9);
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  EXPECT_EQ(precisions(*choice), std::set<std::string>{"fp8"}) << "Hopper multiplies no nvfp4";
}

TEST_F(ChooseTypesTest, OnlyTheCarrierIsNoChoice) {
  const auto choice = choose(Arch::cuda, 0.9);  // has neither fp8 nor nvfp4
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), Code::kRefused);
  EXPECT_EQ(choice.status().message(),
            "--precision auto: cuda runs the layers of this model in none of what auto chooses from but fp16; ask for "
            "it by name");
}

TEST_F(ChooseTypesTest, WhatTheUserAllowsIsNotChosen) {
  lowering_.types.allow = {{"b.fc2", "fp16"}};
  const auto choice = choose(Arch::cpu, 0.9);
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  ASSERT_EQ(choice->layers.size(), 3u);
  EXPECT_TRUE(std::none_of(choice->layers.begin(), choice->layers.end(),
                           [](const AutoLayer& l) { return l.layer.name == "b.fc2"; }));
}

TEST_F(ChooseTypesTest, ACosineThatNothingReachesIsRefused) {
  const auto choice = choose(Arch::cpu, 1);
  EXPECT_EQ(choice.status().code(), Code::kRefused) << "fp16 rounds too";
}

}  // namespace
}  // namespace tessera
