// SPDX-License-Identifier: Apache-2.0
#include "precision/reach.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "precision/masks.h"

namespace tessera {
namespace {

constexpr const char* kGraph = R"(graph g {
  in %x: f32[2,4]
  in %bias: f32[2,4]
  in %seen: u8[2,4]
  in %m: i64[2,4]
  const %w: f32[4,4] = seed(1)
  const %zero: f32[] = {0}
  const %one: f32[] = {1}
  const %low: f32[] = {-3.4e38}
  const %least: f32[] = {1e-12}
  const %tiny: f32[] = {0.000001}
  const %huge: f32[1] = {2.7e36}
  const %wide: f32[1] = {1000}
  %s: f32[2,4] = matmul(%x, %w)
  %mask: f32[2,4] = map(%seen, %zero, %low) {fn="where"}
  %twice: f32[2,4] = map(%mask, %mask) {fn="add"}
  %number: f32[2,4] = copy(%m)
  %inverted: f32[2,4] = map(%one, %number) {fn="sub"}
  %product: f32[2,4] = map(%inverted, %low) {fn="mul"}
  %code: i8:tensor(f32)[2,4] scale=%huge = copy(%mask)
  %decoded: f32[2,4] = copy(%code)
  %masked: f32[2,4] = map(%s, %mask) {fn="add"}
  %p: f32[2,4] = softmax(%masked)
  %own: f32[2,4] = map(%s, %bias) {fn="add"}
  %q: f32[2,4] = softmax(%own)
  %hidden: f32[2,4] = map(%seen, %s, %low) {fn="where"}
  %best: f32[2] = reduce(%hidden) {fn="max"}
  %clipped: f32[2,4] = map(%hidden, %zero) {fn="max"}
  %positive: f32[2,4] = map(%s, %least) {fn="max"}
  %ratio: f32[2,4] = map(%s, %positive) {fn="div"}
  %stated: f32[2,4] = map(%s) {fn="relu"}
  %stated_code: i8:tensor(f32)[2,4] scale=%wide = copy(%stated)
  %measured: f32[2,4] = map(%s) {fn="gelu_erf"}
  out %p
  out %q
  out %best
  out %clipped
  out %ratio
  out %twice
  out %product
  out %decoded
  out %measured
})";

class ReachTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto parsed = parse_graph(kGraph);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    graph = std::move(parsed).value();
    ranges.values["measured"] = 1e5f;
    reach = reach_of_values(graph, &ranges);
  }
  bool leaves(const std::string& name, Element element = Element::f16) {
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].name == name) return reach[v].leaves(element);
    }
    ADD_FAILURE() << "no value " << name;
    return false;
  }
  Graph graph;
  Ranges ranges;
  std::vector<Reach> reach;
};

TEST_F(ReachTest, NumbersThatHideKeysAreFollowed) {
  for (const char* name : {"low", "mask", "twice", "product", "decoded", "masked", "own", "hidden"})
    EXPECT_TRUE(leaves(name)) << name;
  EXPECT_TRUE(leaves("twice", Element::bf16)) << "-Inf in f32";
}

TEST_F(ReachTest, WhatBringsThemBackEndsIt) {
  for (const char* name : {"s", "p", "q", "best", "clipped", "number", "inverted"}) EXPECT_FALSE(leaves(name)) << name;
}

TEST_F(ReachTest, ScalesAndRangesSpeakToo) {
  EXPECT_TRUE(leaves("stated")) << "127 * 1000";
  EXPECT_TRUE(leaves("measured"));
  reach = reach_of_values(graph, nullptr);
  EXPECT_FALSE(leaves("measured"));
}

TEST_F(ReachTest, ADivisorMayBeTooSmall) {
  EXPECT_TRUE(leaves("least") && leaves("positive"));
  EXPECT_FALSE(leaves("tiny"));
  EXPECT_FALSE(leaves("least", Element::bf16));
}

TEST_F(ReachTest, InputsThatActAsMasks) {
  std::set<std::string> names;
  for (ValueId in : mask_inputs(graph)) names.insert(graph.at(in).name);
  EXPECT_EQ(names, (std::set<std::string>{"bias", "seen"})) << "x is read by a layer, m reaches no softmax";
}

}  // namespace
}  // namespace tessera
