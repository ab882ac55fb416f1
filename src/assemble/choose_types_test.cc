// SPDX-License-Identifier: Apache-2.0
// --precision auto: candidates are those that the target runs, the cosine that was asked for is reached, and what the
// user allows stays.
#include "assemble/choose_types.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"

namespace tessera {
namespace {

// Two MLPs beside a residual stream.
constexpr const char* kModel = R"(graph mlps {
  in %image: f32[4,4,16]
  const %we: f32[32,16] = seed(1)
  const %g: f32[32] = seed(2)
  const %w1: f32[64,32] = seed(3)
  const %w2: f32[32,64] = seed(4)
  const %w3: f32[64,32] = seed(6)
  const %w4: f32[32,64] = seed(7)
  const %wh: f32[16,32] = seed(5)
  %e: f32[4,4,32] = matmul(%image, %we) @"embed"
  %n: f32[4,4,32] = norm(%e, %g) {eps=0.000001, kind="layer"} @"norm1"
  %h: f32[4,4,64] = matmul(%n, %w1) then act(gelu_erf) @"a.fc1"
  %r: f32[4,4,32] = matmul(%h, %w2, %e) then residual(2) @"a.fc2"
  %m: f32[4,4,32] = norm(%r, %g) {eps=0.000001, kind="layer"} @"norm2"
  %k: f32[4,4,64] = matmul(%m, %w3) then act(gelu_erf) @"b.fc1"
  %s: f32[4,4,32] = matmul(%k, %w4, %r) then residual(2) @"b.fc2"
  %o: f32[4,4,32] = norm(%s, %g) {eps=0.000001, kind="layer"} @"norm3"
  %y: f32[4,4,16] = matmul(%o, %wh) @"head"
  out %y
}
)";

class ChooseTypesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto parsed = parse_graph(kModel);
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
