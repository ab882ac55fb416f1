// SPDX-License-Identifier: Apache-2.0
#include "profile/timeline.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Timeline, CoverageTellsGapsAndOverlapsApart) {
  const SpanTimes c = coverage_of(std::vector<Interval>{{10, 20}, {15, 30}, {15, 18}, {30, 35}, {40, 50}});
  EXPECT_DOUBLE_EQ(c.span_us, 40);
  EXPECT_DOUBLE_EQ(c.gap_us, 5);          // 35 to 40; 30 follows 30 without a gap
  EXPECT_DOUBLE_EQ(c.overlap_us, 5 + 3);  // 15 to 20 two, 15 to 18 a third one
  const SpanTimes none = coverage_of(std::vector<Interval>{});
  EXPECT_EQ(none.span_us + none.gap_us + none.overlap_us, 0);
}

Profile with_kernels(size_t count) {
  Profile p;
  p.kernels.resize(count);
  return p;
}

TEST(Timeline, TimesAreMediansAndLaunchesThoseOfTheMiddleRun) {
  Profile p = with_kernels(2);
  // The second run is disturbed in its first step, the third in its second.
  take_times({{{{{0, 10}}, {{12, 20}, {20, 32}}}},
              {{{{0, 90}}, {{92, 100}, {100, 112}}}},
              {{{{0, 10}}, {{12, 50}, {50, 62}}}}},
             p);
  EXPECT_DOUBLE_EQ(p.kernels[0].us, 10);
  EXPECT_DOUBLE_EQ(p.kernels[1].us, 20);
  EXPECT_EQ(p.kernels[0].calls, 1);
  EXPECT_EQ(p.kernels[1].calls, 2) << "one step, two launches";
  EXPECT_EQ(p.kernels[1].begin_us, (std::vector<double>{12, 50})) << "the run of the median span is the third";
  EXPECT_DOUBLE_EQ(*p.gap_us, 2);
  EXPECT_DOUBLE_EQ(*p.overlap_us, 0);
  EXPECT_DOUBLE_EQ(*p.span_us, 62);
  ASSERT_EQ(p.notes.size(), 1u) << "30 + 2 us of 62";
  EXPECT_NE(p.notes[0].find("add up to 32 us, and the median run takes 62 us"), std::string::npos) << p.notes[0];
}

TEST(Timeline, RunsThatAgreeNeedNoNote) {
  Profile p = with_kernels(2);
  take_times({{{{{1, 10}}, {{8, 20}}}}, {{{{1, 10}}, {{8, 20}}}}}, p);
  EXPECT_TRUE(p.notes.empty());
  EXPECT_DOUBLE_EQ(p.kernel_us() + *p.gap_us, *p.span_us);
  EXPECT_DOUBLE_EQ(*p.early_us, 2);
  EXPECT_DOUBLE_EQ(*p.overlap_us, 0);
}

// Three launches under way at once, as where weights are loaded ahead; and one that ends before the one before it.
TEST(Timeline, OwnTimesBeginWhereTheOthersHaveEnded) {
  Profile p = with_kernels(4);
  take_times({{{{{0, 10}}, {{2, 16}}, {{4, 21}}, {{30, 31}}}}}, p);
  EXPECT_DOUBLE_EQ(p.kernels[0].us, 10);
  EXPECT_DOUBLE_EQ(p.kernels[1].us, 6);
  EXPECT_DOUBLE_EQ(p.kernels[2].us, 5);
  EXPECT_DOUBLE_EQ(p.kernels[3].us, 1);
  EXPECT_DOUBLE_EQ(*p.early_us, 8 + 12);
  EXPECT_DOUBLE_EQ(p.kernel_us() + *p.gap_us, *p.span_us);
  Profile hidden = with_kernels(3);
  take_times({{{{{0, 10}}, {{2, 8}}, {{9, 12}}}}}, hidden);
  EXPECT_DOUBLE_EQ(hidden.kernels[1].us, 0);
  EXPECT_DOUBLE_EQ(hidden.kernels[2].us, 2);
  EXPECT_DOUBLE_EQ(hidden.kernel_us(), *hidden.span_us);
}

// A graph of three steps with 1, 2 and 1 nodes, whose ids are in no order; the third begins before the second ends.
std::vector<GraphActivity> launches(int count) {
  std::vector<GraphActivity> all;
  for (int i = 0; i < count; ++i) {
    const double at = 1000.0 * i;
    all.insert(all.end(), {{7, at + 30, at + 45}, {3, at, at + 10}, {9, at + 12, at + 20}, {5, at + 18, at + 31}});
  }
  return all;
}

TEST(Timeline, NodesOfAGraphBecomeSteps) {
  const auto runs = match_activities(launches(5), {1, 2, 1}, 2);
  ASSERT_TRUE(runs.ok()) << runs.status().message();
  ASSERT_EQ(runs->size(), 2u) << "the first three were the warm-up";
  for (const RunTrace& r : *runs) {
    ASSERT_EQ(r.steps.size(), 3u);
    ASSERT_EQ(r.steps[1].size(), 2u);
    EXPECT_DOUBLE_EQ(r.steps[0][0].begin_us, 0) << "from the begin of its own run";
    EXPECT_DOUBLE_EQ(r.steps[1][0].begin_us, 12);
    EXPECT_DOUBLE_EQ(r.steps[1][1].end_us, 31);
    EXPECT_DOUBLE_EQ(r.steps[2][0].begin_us, 30);
    const SpanTimes c = coverage_of(r);
    EXPECT_DOUBLE_EQ(c.overlap_us, 3);
    EXPECT_DOUBLE_EQ(c.gap_us, 2);
  }
}

// Two nodes that begin almost together keep their order in all runs.
TEST(Timeline, NodesKeepTheirStep) {
  std::vector<GraphActivity> all;
  for (int i = 0; i < 3; ++i) {
    const double at = 100.0 * i, late = i == 1 ? 0.2 : 0;  // in the second run node 1 is the later one
    all.insert(all.end(), {{1, at + late, at + 10}, {2, at + 0.1, at + 50}});
  }
  const auto runs = match_activities(all, {1, 1}, 3);
  ASSERT_TRUE(runs.ok()) << runs.status().message();
  for (const RunTrace& r : *runs) EXPECT_GT(r.steps[1][0].end_us, 40) << "node 2 is the second step";
}

TEST(Timeline, WhatCuptiLostIsAnError) {
  std::vector<GraphActivity> lost = launches(4);
  lost.pop_back();
  const auto one = match_activities(lost, {1, 2, 1}, 4);
  ASSERT_FALSE(one.ok());
  EXPECT_NE(one.status().message().find("some were lost"), std::string::npos) << one.status().message();
  const auto nodes = match_activities(launches(4), {1, 2, 2}, 4);
  ASSERT_FALSE(nodes.ok());
  EXPECT_NE(nodes.status().message().find("4 nodes of a CUDA graph that has 5"), std::string::npos);
  EXPECT_FALSE(match_activities(launches(2), {1, 2, 1}, 3).ok()) << "fewer runs than were asked for";
  EXPECT_FALSE(match_activities({}, {1}, 1).ok());
}

}  // namespace
}  // namespace tessera
