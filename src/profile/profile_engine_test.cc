// SPDX-License-Identifier: Apache-2.0
// Profiles of schedules: every graph counts as often as it runs, and the whole is measured.
#include "profile/profile_engine.h"

#include <gtest/gtest.h>

#include "plan/engine_file.h"
#include "runtime/test_engine.h"
#include "traces/chrome_trace.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 64, kCols = 512;
constexpr int64_t kBytes = kRows * kCols * 4;
constexpr int kTimes = 7;

// `begin` puts x into a state, `step` adds w to it, seven times.
Engine counting() {
  const Shape shape = {kRows, kCols};
  Engine e;
  e.model = "counter", e.precision = "fp32", e.target = Arch::cpu;
  e.constants = {{"w", Bytes::own(Buffer(kBytes))}};
  e.states = {{"sum", kBytes}};
  Plan begin{.name = "begin.batch1", .graph = "begin", .arch = Arch::cpu, .batch = kRows};
  begin.tensors = {test_tensor("x", shape, Storage::kInput, 0), test_tensor("sum", shape, Storage::kState, 0),
                   test_tensor("sum after", shape, Storage::kState, 0)};
  begin.inputs = {{"x", 0}, {"sum", 1}};
  begin.outputs = {{"sum after", 2}};
  begin.steps = {{.layer = "keep", .op = "copy", .variant = "copy/cpu", .in = {0}, .out = {2}}};
  Plan step{.name = "step.batch1", .graph = "step", .arch = Arch::cpu, .batch = kRows};
  step.tensors = {test_tensor("sum", shape, Storage::kState, 0), test_tensor("w", shape, Storage::kConstant, 0),
                  test_tensor("added", shape, Storage::kArena, -1), test_tensor("sum after", shape, Storage::kState, 0),
                  test_tensor("y", shape, Storage::kOutput, 1)};
  step.arena_bytes = kBytes;
  step.inputs = {{"sum", 0}};
  step.outputs = {{"sum after", 3}, {"y", 4}};
  step.steps = {{.layer = "add", .op = "map", .variant = "map/cpu", .in = {0, 1}, .out = {2}},
                {.layer = "keep", .op = "copy", .variant = "copy/cpu", .in = {2}, .out = {3}},
                {.layer = "leave", .op = "copy", .variant = "copy/cpu", .in = {2}, .out = {4}}};
  step.steps[0].attrs.set("fn", "add");
  e.plans = {begin, step};
  e.schedule = {{"begin", 1}, {"step", kTimes}};
  return e;
}

Result<Profile> profiled(const Engine& e, const std::string& plan = "") {
  TS_ASSIGN(const PlansOfAnswer plans, plans_of_answer(e, plan));
  return profile_engine(e, plans, {.runs = 9, .warmup = 2, .ceilings = CeilingsUse::kNone});
}

TEST(ProfileEngine, AScheduleIsAllOfItsRuns) {
  const Engine e = counting();
  ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
  const auto p = profiled(e);
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->plan, "begin.batch1, 7 x step.batch1");
  ASSERT_EQ(p->graphs.size(), 2u);
  EXPECT_EQ(p->graphs[1].graph, "step");
  EXPECT_EQ(p->graphs[1].times, kTimes);
  double sum = 0;
  for (const GraphTime& g : p->graphs) {
    ASSERT_TRUE(g.ms) << g.graph;
    EXPECT_GT(*g.ms * 1e3, 0.5 * g.kernel_us) << "a run is hardly shorter than its kernels";
    sum += static_cast<double>(g.times) * g.kernel_us;
  }
  EXPECT_NEAR(p->kernel_us(), sum, 1e-6 * sum);
  ASSERT_EQ(p->kernels.size(), 4u);
  for (const KernelTime& k : p->kernels) {
    EXPECT_EQ(k.calls, k.graph == "begin" ? 1 : kTimes) << k.layer;
    EXPECT_EQ(k.begin_us.size(), static_cast<size_t>(k.calls)) << k.layer;
    EXPECT_GT(k.us, 0) << k.layer;
  }
  EXPECT_EQ(p->kernels[1].graph, "step");
  EXPECT_DOUBLE_EQ(*p->kernels[1].bytes, 3.0 * kTimes * kBytes);
  EXPECT_EQ(*p->weight_bytes, kBytes) << "once, though it is read seven times";
  ASSERT_TRUE(p->latency);
  EXPECT_EQ(p->latency->runs, 9);
  // Loose, for a busy machine: seven steps are not one.
  EXPECT_GT(p->latency->median_ms * 1e3, 0.3 * p->kernel_us());
  EXPECT_LT(p->latency->median_ms * 1e3, 20 * p->kernel_us() + 1e3);
}

TEST(ProfileEngine, ItsTimelineRunsGraphAfterGraph) {
  const auto p = profiled(counting());
  ASSERT_TRUE(p.ok()) << p.status().message();
  double last = p->kernels[0].end_us.at(0);
  for (size_t t = 0; t < kTimes; ++t) {
    for (size_t k = 1; k < 4; ++k) {
      EXPECT_GE(p->kernels[k].begin_us.at(t), last) << k << " of run " << t;
      last = p->kernels[k].end_us.at(t);
    }
  }
  EXPECT_TRUE(chrome_trace(*p).ok());
  const auto again = parse_profile(profile_json(*p));
  ASSERT_TRUE(again.ok()) << again.status().message();
  ASSERT_EQ(again->graphs.size(), 2u);
  EXPECT_EQ(again->graphs[1].plan, "step.batch1");
  EXPECT_EQ(*again->graphs[1].ms, *p->graphs[1].ms);
  EXPECT_EQ(again->kernels[2].graph, "step");
}

TEST(ProfileEngine, AnEngineWithoutScheduleIsItsPlans) {
  Engine e = counting();
  EXPECT_EQ(answers_of(e).size(), 1u) << "the schedule";
  const auto one = profiled(e, "step.batch1");
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->plan, "step.batch1");
  EXPECT_TRUE(one->graphs.empty());
  EXPECT_EQ(one->kernels[0].calls, 1);
  EXPECT_NE(profiled(e, "stop").status().message().find("there are begin.batch1, step.batch1"), std::string::npos);
  e.schedule.clear();
  EXPECT_EQ(answers_of(e).size(), 2u);
  const auto first = profiled(e);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->plan, "begin.batch1");
  e.schedule = {{"begin", 1}};
  EXPECT_EQ(profiled(e).value().plan, "begin.batch1");
  e.plans.clear();
  EXPECT_FALSE(profiled(e).ok());
}

// Of a graph's buckets the largest, of its batches the smallest: what a session takes that is told nothing.
TEST(ProfileEngine, TakesThePlansThatASessionTakes) {
  Engine e = counting();
  Plan small = e.plans[1], large = e.plans[1], wide = e.plans[1];
  small.name = "step.small", small.sizes = {{"prompt", 8}};
  large.name = "step.large", large.sizes = {{"prompt", 32}};
  wide.name = "step.wide", wide.sizes = {{"prompt", 32}}, wide.batch = 2 * kRows;
  e.plans = {e.plans[0], small, wide, large};
  const auto plans = plans_of_answer(e, "");
  ASSERT_TRUE(plans.ok()) << plans.status().message();
  EXPECT_EQ(name_of(*plans), "begin.batch1, 7 x step.large");
}

}  // namespace
}  // namespace tessera
