// SPDX-License-Identifier: Apache-2.0
#include "runtime/batches.h"

#include <gtest/gtest.h>

#include "runtime/test_engine.h"

namespace tessera {
namespace {

// y = x for rows of 4, in plans of these batch sizes.
Engine copying_engine(const std::vector<int64_t>& batches) {
  Engine e;
  e.target = Arch::cpu;
  for (const int64_t b : batches) {
    Plan p{.name = cat("batch", b), .arch = Arch::cpu, .batch = b};
    p.tensors = {test_tensor("x", {b, 4}, Storage::kInput, 0), test_tensor("y", {b, 4}, Storage::kOutput, 0)};
    p.inputs = {{"x", 0}};
    p.outputs = {{"y", 1}};
    p.steps.push_back({.layer = "copy", .op = "copy", .variant = "copy/cpu", .in = {0}, .out = {1}});
    e.plans.push_back(p);
  }
  e.plans.push_back({.name = kGoldenPlan, .arch = Arch::ref, .batch = 2});
  return e;
}

std::vector<std::string> names_of(const std::vector<Chunk>& chunks) {
  std::vector<std::string> names;
  for (const Chunk& c : chunks) names.push_back(cat(c.plan->name, " ", c.first, "+", c.count));
  return names;
}

TEST(Batches, TheLargestFilledPlanThenTheSmallestThatHoldsTheRest) {
  const Engine e = copying_engine({2, 8, 5});
  const std::vector<const Plan*> plans = runnable_plans(e);
  ASSERT_EQ(plans.size(), 3u);
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of(split_into_chunks(plans, 1)), (Names{"batch2 0+1"}));
  EXPECT_EQ(names_of(split_into_chunks(plans, 8)), (Names{"batch8 0+8"}));
  EXPECT_EQ(names_of(split_into_chunks(plans, 4)), (Names{"batch2 0+2", "batch2 2+2"}));
  EXPECT_EQ(names_of(split_into_chunks(plans, 24)), (Names{"batch8 0+8", "batch8 8+8", "batch8 16+8"}));
  EXPECT_EQ(names_of(split_into_chunks(plans, 14)), (Names{"batch8 0+8", "batch5 8+5", "batch2 13+1"}));
  const Engine one = copying_engine({8});
  EXPECT_EQ(names_of(split_into_chunks(runnable_plans(one), 11)), (Names{"batch8 0+8", "batch8 8+3"}));
}

TEST(Batches, EverySampleComesBackInItsPlace) {
  const Engine e = copying_engine({2, 5});
  std::vector<std::string> admitted;
  int64_t done = 0;
  BatchRunner runner(e, {.admit =
                             [&](const Plan& p) {
                               admitted.push_back(p.name);
                               return Status();
                             },
                         .progress =
                             [&](int64_t samples) {
                               done += samples;
                               return Status();
                             }});
  for (const int64_t samples : {1, 2, 5, 8, 13}) {
    const std::vector<float> x = test_input(static_cast<size_t>(samples) * 4, static_cast<int>(samples));
    std::vector<float> y(x.size() + 4, -1);
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    const Status s = runner.run(samples, in, out);
    ASSERT_TRUE(s.ok()) << s.message();
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin())) << samples;
    EXPECT_EQ(y[x.size()], -1) << "what fills the last chunk up is cut off";
  }
  EXPECT_EQ(done, 1 + 2 + 5 + 8 + 13);
  EXPECT_EQ(admitted, (std::vector<std::string>{"batch2", "batch5"})) << "each plan once, before its first run";
  EXPECT_EQ(runner.used(), (std::vector<const Plan*>{&e.plans[0], &e.plans[1]}));
  EXPECT_EQ(runner.times().runs, 1 + 1 + 1 + 3 + 4);
  EXPECT_NE(runner.machine(), "");
}

// The engine's state shows what the last chunk held.
TEST(Batches, ALastChunkIsFilledUpWithTheFirstSamples) {
  const Engine e = remembering_engine(Arch::cpu, 2, 4);
  BatchRunner runner(e);
  const std::vector<float> x = test_input(3 * 4, 1);
  std::vector<float> y(x.size()), before(x.size());
  const void* in[] = {x.data()};
  void* out[] = {y.data(), before.data()};
  ASSERT_TRUE(runner.run(3, in, out).ok());
  ASSERT_TRUE(runner.run(3, in, out).ok());
  const std::vector<float> held(before.begin(), before.begin() + 8);
  std::vector<float> want(x.begin() + 8, x.end());
  want.insert(want.end(), x.begin(), x.begin() + 4);
  EXPECT_EQ(held, want);
}

TEST(Batches, APlanThatIsNotAdmittedDoesNotRun) {
  const Engine e = copying_engine({2});
  BatchRunner runner(e, {.admit = [](const Plan& p) { return Status(Code::kVerifyFailed, "no " + p.name); }});
  const std::vector<float> x = test_input(8, 1);
  std::vector<float> y(8, -1);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  EXPECT_EQ(runner.run(2, in, out).message(), "no batch2");
  EXPECT_EQ(y, std::vector<float>(8, -1));
  EXPECT_EQ(runner.run(2, in, out).message(), "no batch2") << "asked again";
  const Engine none = copying_engine({});
  EXPECT_EQ(BatchRunner(none).run(1, in, out).message(), "the engine has no plan to run");
}

}  // namespace
}  // namespace tessera
