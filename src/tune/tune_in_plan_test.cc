// SPDX-License-Identifier: Apache-2.0
#include "tune/tune_in_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "ir/text.h"
#include "op/op.h"
#include "plan/choose.h"
#include "plan/make_plan.h"
#include "tune/tune.h"

namespace tessera {
namespace {

// Two layers of one problem between norms, and one of another problem.
Graph few_rows() {
  const auto zeros = [](int n) {
    std::string text = "0";
    for (int i = 1; i < n; ++i) text += ", 0";
    return text;
  };
  const auto g = parse_graph(cat("graph g {\n  in %x: f16[64,128]\n  const %w: f16[128,128] = {", zeros(128 * 128),
                                 "}\n  const %v: f16[256,128] = {", zeros(256 * 128), R"(}
  %a: f16[64,128] = matmul(%x, %w) @"a"
  %n: f16[64,128] = norm(%a) {eps=0.001, kind="layer"} @"n"
  %b: f16[64,128] = matmul(%n, %w) @"b"
  %y: f16[64,256] = matmul(%b, %v) @"c"
  out %y
}
)"));
  EXPECT_TRUE(g.ok()) << g.status().message();
  return g.ok() ? *g : Graph();
}

Plan plan_by(const TuningTable& table) {
  static std::vector<EngineConstant> constants;
  ConstantPool pool(constants);
  auto plan = make_plan(few_rows(), {.name = "batch1", .target = Arch::sm90, .batch = 1, .tuning = &table}, pool);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *std::move(plan) : Plan();
}

// Every candidate within a tenth of the others, in the order of the list.
TuningTable alone_times() {
  TuningTable table{.gpu = "made up", .arch = Arch::sm90, .entries = {}};
  for (const TunedProblem& t : problems_to_tune(plan_by(table))) {
    double us = 10;
    for (const Candidate& c : t.all) table.record(t.key, {c.variant->name, c.config, us += 0.05});
  }
  return table;
}

std::string kernel_of(const Plan& plan, const std::string& layer) {
  for (const PlanStep& s : plan.steps) {
    if (s.layer == layer) return kernel_name(s.variant, s.config);
  }
  return "none";
}

TEST(TuneInPlan, TheWholePlanDecides) {
  TuningTable table = alone_times();
  const Plan before = plan_by(table);
  const std::string first = kernel_of(before, "a");
  std::set<std::string> tried;
  int calls = 0;
  // Another kernel for a and b makes the plan shorter by 3 us; for c nothing matters.
  const TimePlan time = [&](const Plan& p) -> Result<double> {
    ++calls;
    EXPECT_EQ(kernel_of(p, "a"), kernel_of(p, "b")) << "layers of one problem run by one kernel";
    tried.insert(kernel_of(p, "a"));
    return kernel_of(p, "a") == first                                           ? 100.0
           : kernel_of(p, "a") == *tried.rbegin() && kernel_of(p, "a") != first ? 97.0
                                                                                : 98.0;
  };
  const auto timed = tune_in_plan(before, time, /*quiet=*/true, table);
  ASSERT_TRUE(timed.ok()) << timed.status().message();
  EXPECT_EQ(*timed, 3) << "two problems of matmuls, one of a norm";
  EXPECT_GT(tried.size(), 1u);
  EXPECT_LE(tried.size(), 6u);
  const Plan after = plan_by(table);
  EXPECT_NE(kernel_of(after, "a"), first);
  EXPECT_EQ(kernel_of(after, "a"), kernel_of(after, "b"));
  EXPECT_EQ(kernel_of(after, "c"), kernel_of(before, "c")) << "what changes nothing stays";
  // What is in the table is not measured again.
  const int so_far = calls;
  const auto again = tune_in_plan(after, time, true, table);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, 0);
  EXPECT_EQ(calls, so_far);
}

// What suits a and b depends on what c runs by, which is decided later: they are asked again.
TEST(TuneInPlan, GoesRoundUntilNothingChanges) {
  TuningTable table = alone_times();
  const Plan before = plan_by(table);
  const std::string a = kernel_of(before, "a"), c = kernel_of(before, "c");
  int calls = 0;
  const auto timed = tune_in_plan(
      before,
      [&](const Plan& p) -> Result<double> {
        ++calls;
        const bool other_a = kernel_of(p, "a") != a, other_c = kernel_of(p, "c") != c;
        return other_c ? (other_a ? 90.0 : 97.0) : (other_a ? 110.0 : 100.0);
      },
      /*quiet=*/true, table);
  ASSERT_TRUE(timed.ok()) << timed.status().message();
  EXPECT_EQ(*timed, 3) << "problems, however often each was asked";
  EXPECT_NE(kernel_of(plan_by(table), "c"), c);
  EXPECT_NE(kernel_of(plan_by(table), "a"), a);
  EXPECT_LE(calls, 3 * 3 * 6 * 2) << "passes, problems, candidates, rounds";
}

TEST(TuneInPlan, NoiseChangesNothing) {
  TuningTable table = alone_times();
  const Plan before = plan_by(table);
  double us = 100;
  const auto timed = tune_in_plan(
      before, [&](const Plan&) -> Result<double> { return us -= 0.001; }, true, table);
  ASSERT_TRUE(timed.ok());
  for (const char* layer : {"a", "b", "c"})
    EXPECT_EQ(kernel_of(plan_by(table), layer), kernel_of(before, layer)) << layer;
}

TEST(TuneInPlan, WhatCannotRunIsLeftOutAndTroubleEndsIt) {
  TuningTable table = alone_times();
  const Plan before = plan_by(table);
  const std::string first = kernel_of(before, "a"), last = kernel_of(before, "c");
  const auto timed = tune_in_plan(
      before,
      [&](const Plan& p) -> Result<double> {
        if (kernel_of(p, "a") != first || kernel_of(p, "c") != last) return refused("no");
        return 100.0;
      },
      true, table);
  ASSERT_TRUE(timed.ok()) << timed.status().message();
  EXPECT_EQ(kernel_of(plan_by(table), "a"), first);
  TuningTable other = alone_times();
  const auto trouble = tune_in_plan(
      before, [](const Plan&) -> Result<double> { return machine_error("the GPU is gone"); }, true, other);
  ASSERT_FALSE(trouble.ok());
  EXPECT_NE(trouble.status().message().find("the GPU is gone"), std::string::npos);
}

TEST(TuneInPlan, SlowOnesAreNotTried) {
  TuningTable table = alone_times();
  const Plan before = plan_by(table);
  TuningTable spread = table;
  for (auto& [key, times] : table.entries) {
    for (size_t i = 1; i < times.size(); ++i)
      spread.record(key, {times[i].variant, times[i].config, 20.0 + static_cast<double>(i)});
  }
  const auto timed = tune_in_plan(
      plan_by(spread), [](const Plan&) -> Result<double> { return 1.0; }, true, spread);
  ASSERT_TRUE(timed.ok());
  EXPECT_EQ(*timed, 0);
}

}  // namespace
}  // namespace tessera
