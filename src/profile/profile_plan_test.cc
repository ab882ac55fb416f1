// SPDX-License-Identifier: Apache-2.0
#include "profile/profile_plan.h"

#include <gtest/gtest.h>

#include "archs/cuda/device_memory.h"
#include "ir/text.h"
#include "plan/make_plan.h"
#include "runtime/test_engine.h"
#include "traces/chrome_trace.h"

namespace tessera {
namespace {

// Steps that take long enough to be told from the clock's own step. Copies reach the caller's buffers, on a GPU too.
Engine two_layers(Arch target) {
  const auto g = parse_graph(R"(graph g {
  in %x: f32[64,256]
  const %w: f16[512,256] = seed(1)
  const %v: f16[256,512] = seed(2)
  %i: f16[64,256] = copy(%x) {element="f16"} @"enter"
  %a: f16[64,512] = matmul(%i, %w) @"fc1"
  %b: f16[64,256] = matmul(%a, %v) @"fc2"
  %n: f16[64,256] = norm(%b) {eps=0.001, kind="layer"} @"norm"
  %y: f32[64,256] = copy(%n) {element="f32"} @"leave"
  out %y
}
)");
  EXPECT_TRUE(g.ok()) << g.status().message();
  Engine e;
  e.model = "two layers", e.precision = "fp16", e.target = target;
  ConstantPool pool(e.constants);
  auto plan = make_plan(*g, {.name = "batch64", .target = target, .batch = 64}, pool);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (plan.ok()) e.plans = {*std::move(plan)};
  return e;
}

Result<Profile> profiled(const Engine& engine, int runs = 9) {
  return profile_plan(engine, engine.plans.at(0), {.runs = runs, .warmup = 2, .ceilings = CeilingsUse::kNone});
}

TEST(ProfilePlan, EveryStepIsThereOnceAndInsideTheRun) {
  const Engine e = two_layers(Arch::cpu);
  const auto p = profiled(e);
  ASSERT_TRUE(p.ok()) << p.status().message();
  ASSERT_EQ(p->kernels.size(), 5u);
  double last = 0, sum = 0;
  for (size_t i = 0; i < p->kernels.size(); ++i) {
    const KernelTime& k = p->kernels[i];
    EXPECT_EQ(k.layer, e.plans[0].steps[i].layer);
    EXPECT_GT(k.us, 0) << k.layer;
    ASSERT_EQ(k.begin_us.size(), 1u);
    EXPECT_GE(k.begin_us[0], last) << k.layer << " begins when the one before has ended";
    EXPECT_GT(k.end_us[0], k.begin_us[0]);
    last = k.end_us[0];
    sum += k.end_us[0] - k.begin_us[0];
  }
  // Of the run that the launches are of: no step is counted twice, and none is longer than the run.
  EXPECT_LE(sum, last - p->kernels[0].begin_us[0] + 1e-9);
  EXPECT_LE(*p->gap_us, *p->span_us);
  EXPECT_EQ(*p->overlap_us, 0) << "host steps run one after the other";
  EXPECT_GE(*p->residual_us, 0) << "inside the same run";
  EXPECT_EQ(p->kernels[0].kernel_class, KernelClass::kConversion);
  EXPECT_DOUBLE_EQ(*p->kernels[1].flops, 2.0 * 64 * 512 * 256);
  EXPECT_EQ(p->kernels[3].kernel_class, KernelClass::kNorm);
}

TEST(ProfilePlan, TellsOfRunsWithoutProfiling) {
  const Engine e = two_layers(Arch::cpu);
  const auto p = profiled(e);
  ASSERT_TRUE(p.ok()) << p.status().message();
  ASSERT_TRUE(p->latency);
  const Latency& l = *p->latency;
  EXPECT_EQ(l.runs, 9);
  EXPECT_TRUE(0 < l.least_ms && l.least_ms <= l.median_ms && l.median_ms <= l.p90_ms && l.p90_ms <= l.p95_ms &&
              l.p95_ms <= l.p99_ms && l.p99_ms <= l.most_ms);
  EXPECT_GT(*p->profiled_ms, 0);
  EXPECT_DOUBLE_EQ(*p->per_second() * l.median_ms, 64e3);
  EXPECT_FALSE(p->enqueue_us || p->host_to_device_us) << "a host plan has no such times";
  EXPECT_EQ(*p->weight_bytes, 2 * 512 * 256 * 2);
  EXPECT_EQ(p->source, "tessera");
  EXPECT_EQ(p->plan, "batch64");
  EXPECT_EQ(p->batch, 64);
  EXPECT_FALSE(p->predicted);
}

// As `profile --json` writes it and explain reads it.
TEST(ProfilePlan, SurvivesItsOwnJson) {
  auto p = profiled(two_layers(Arch::cpu));
  ASSERT_TRUE(p.ok()) << p.status().message();
  p->ceilings = {.machine = "m", .measured = true, .bytes_per_s = 1e10, .flops_per_s = {{"fp16", 1e11}}};
  p->residual_us = -1.5;
  p->notes = {"a note"};
  const std::string text = profile_json(*p);
  const auto again = parse_profile(text);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(profile_json(*again), text);
  EXPECT_NE(text.find("\"bound\": \""), std::string::npos);
  EXPECT_NE(text.find("\"per_second\": "), std::string::npos);
}

// The state is the executor's own and zero; ports in it are not copied into by every run.
TEST(ProfilePlan, PlansWithStates) {
  const Engine e = remembering_engine(Arch::cpu, 8, 32);
  const auto p = profiled(e, 3);
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->kernels.size(), 5u);
  EXPECT_EQ(p->kernels[1].kernel_class, KernelClass::kCopy);
  EXPECT_TRUE(chrome_trace(*p).ok());
}

TEST(ProfilePlan, OneRunIsEnough) {
  const auto p = profiled(two_layers(Arch::cpu), 1);
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->latency->runs, 1);
  EXPECT_EQ(p->latency->median_ms, p->latency->p99_ms);
}

TEST(ProfilePlan, PlansByName) {
  Engine e = two_layers(Arch::cpu);
  EXPECT_EQ(pick_plan(e, "").value(), &e.plans[0]);
  EXPECT_EQ(pick_plan(e, "batch64").value(), &e.plans[0]);
  const auto none = pick_plan(e, "batch1");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("no plan is called 'batch1'; there are batch64"), std::string::npos);
  e.plans.clear();
  EXPECT_FALSE(pick_plan(e, "").ok());
}

TEST(ProfilePlan, TargetsThatAreNotHere) {
  if (device_present(Arch::sm90)) GTEST_SKIP() << "it is here";
  const auto p = profiled(two_layers(Arch::cuda));
  ASSERT_FALSE(p.ok());
  EXPECT_NE(p.status().message().find("which cannot run here"), std::string::npos) << p.status().message();
}

// Inside the CUDA graph: kernels of every step, gaps and overlaps of one run, and what the launch costs the host.
TEST(ProfilePlan, cuda_ActivitiesOfTheGraph) {
  if (!device_present(Arch::cuda)) GTEST_SKIP() << why_no_device(Arch::cuda);
  const Engine e = two_layers(Arch::cuda);
  const auto p = profiled(e, 20);
  ASSERT_TRUE(p.ok()) << p.status().message();
  ASSERT_EQ(p->kernels.size(), e.plans[0].steps.size());
  for (const std::string& n : p->notes) EXPECT_EQ(n.find("outside the CUDA graph"), std::string::npos) << n;
  ASSERT_TRUE(p->span_us && p->gap_us && p->overlap_us && p->residual_us);
  for (const KernelTime& k : p->kernels) {
    EXPECT_GE(k.calls, 1) << k.layer;
    EXPECT_GT(k.us, 0) << k.layer;
    EXPECT_EQ(k.begin_us.size(), static_cast<size_t>(k.calls));
  }
  for (size_t i = 1; i < p->kernels.size(); ++i)
    EXPECT_LE(p->kernels[i - 1].begin_us[0], p->kernels[i].begin_us[0]) << "steps begin in their order";
  EXPECT_LE(*p->span_us, *p->profiled_ms * 1e3) << "kernels lie inside the events around the graph";
  EXPECT_GT(*p->enqueue_us, 0);
  EXPECT_GT(*p->host_to_device_us, 0);
  EXPECT_GT(*p->device_to_host_us, 0);
}

}  // namespace
}  // namespace tessera
