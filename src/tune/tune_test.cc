// SPDX-License-Identifier: Apache-2.0
#include "tune/tune.h"

#include <gtest/gtest.h>

#include "op/op.h"
#include "plan/make_plan.h"
#include "runtime/time_kernel.h"

namespace tessera {
namespace {

// Two layers of one problem and one of another, which only one variant may run.
Graph three_layers() {
  Graph g;
  const auto value = [&](const std::string& name, const Type& type, bool constant) {
    Value v{.name = name, .type = type, .constant = constant, .data = {}};
    if (constant) {
      const int64_t cols = type.shape.back(), rows = elements(type.shape) / cols;
      v.data = Bytes::own(Buffer(static_cast<size_t>(packed_bytes(type.quant.element, elements(type.shape)))));
      (void)rows;
    }
    return g.add_value(std::move(v));
  };
  const Type x{{2048, 256}, Element::f16}, w{{256, 256}, Element::f16};
  const ValueId in = value("x", x, false), a = value("a", x, false), b = value("b", x, false), y = value("y", x, false);
  const ValueId wa = value("wa", w, true), wb = value("wb", w, true);
  g.inputs = {in}, g.outputs = {y};
  g.nodes = {Node{.name = "first", .op = "matmul", .inputs = {in, wa}, .outputs = {a}},
             Node{.name = "second", .op = "matmul", .inputs = {a, wb}, .outputs = {b}},
             Node{.name = "last", .op = "softmax", .inputs = {b}, .outputs = {y}, .attrs = {{"axis", int64_t{1}}}}};
  return g;
}

Plan plan_of(const TuningTable* table) {
  std::vector<EngineConstant> constants;
  ConstantPool pool(constants);
  auto plan =
      make_plan(three_layers(), {.name = "batch2048", .target = Arch::sm90, .batch = 2048, .tuning = table}, pool);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *std::move(plan) : Plan();
}

TEST(Tune, MeasuresEachDistinctProblemOnceAndTheFastestIsTaken) {
  const Plan before = plan_of(nullptr);
  EXPECT_EQ(before.tuning, "");
  const std::vector<TunedProblem> problems = problems_to_tune(before);
  ASSERT_EQ(problems.size(), 1u);
  ASSERT_EQ(problems[0].layers, (std::vector<std::string>{"first", "second"}));
  ASSERT_GE(problems[0].all.size(), 2u);
  const Candidate wanted = problems[0].all.back();

  TuningTable table{.gpu = "made up", .arch = Arch::sm90, .entries = {}};
  int asked = 0;
  const TuneOptions options{.time = [&](const Candidate& c, const Problem& p) -> Result<double> {
    ++asked;
    EXPECT_EQ(p.in[1].layout, Layout::kRows);
    EXPECT_TRUE(p.config.empty());
    return c.variant == wanted.variant && c.config == wanted.config ? 10.0 : 20.0 + asked;
  }};
  const auto report = tune(before, options, table);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->problems, 1);
  EXPECT_EQ(report->measured, static_cast<int64_t>(problems[0].all.size()));
  const auto again = tune(before, options, table);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->measured, 0);
  EXPECT_EQ(asked, static_cast<int>(problems[0].all.size()));

  const Plan after = plan_of(&table);
  EXPECT_EQ(after.tuning, tuning_hash(table));
  EXPECT_EQ(after.steps[0].variant, wanted.variant->name);
  EXPECT_EQ(after.steps[0].config, wanted.config);
  size_t slower = 0;
  for (const Refusal& r : after.steps[0].refusals) slower += r.reason == kSlowerAsMeasured;
  EXPECT_EQ(slower, problems[0].all.size() - 1);
  EXPECT_EQ(problems_to_tune(after)[0].key, problems[0].key) << "the key may not depend on the choice";
}

TEST(Tune, WhatCannotBeBoundIsLeftOutAndTroubleEndsIt) {
  const Plan plan = plan_of(nullptr);
  const std::vector<TunedProblem> problems = problems_to_tune(plan);
  ASSERT_EQ(problems.size(), 1u);
  TuningTable table{.gpu = "made up", .arch = Arch::sm90, .entries = {}};
  const auto left = tune(plan, {.time = [&](const Candidate& c, const Problem&) -> Result<double> {
                           if (c.variant == problems[0].all[0].variant) return refused("no algorithm");
                           return 5.0;
                         }},
                         table);
  ASSERT_TRUE(left.ok());
  ASSERT_FALSE(left->left_out.empty());
  EXPECT_EQ(left->left_out[0], cat(kernel_name(problems[0].all[0].variant->name, problems[0].all[0].config),
                                   " on layer first: no algorithm"));
  TuningTable empty{.gpu = "made up", .arch = Arch::sm90, .entries = {}};
  const auto broken = tune(plan, {.time = [](const Candidate&, const Problem&) -> Result<double> {
                             return machine_error("the GPU fell off");
                           }},
                           empty);
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.status().message().find("tuning layer first, "), std::string::npos);
  EXPECT_NE(broken.status().message().find("the GPU fell off"), std::string::npos);
}

TEST(TimedOperands, AreRandomScaledAndNeverZero) {
  Problem p{.op = "matmul",
            .in = {dense_operand({3, 1 << 20}, kE4m3PerTensor), dense_operand({5, 1 << 20}, kE4m3PerChannel, true),
                   Operand{}},
            .out = {dense_operand({3, 5}, kE4m3PerTensor)}};
  const ProblemBytes b = random_bytes(p, 1);
  ASSERT_EQ(b.in.size(), 3u);
  EXPECT_EQ(b.in[0].data.size(), size_t{3} << 20);
  EXPECT_EQ(b.in[1].scale.size(), 5 * sizeof(float));
  EXPECT_TRUE(b.in[2].data.empty());
  EXPECT_EQ(b.out[0].scale.size(), sizeof(float));
  double square = 0;
  std::vector<double> numbers(3 << 20);
  info(Element::e4m3).decode_f64(b.in[0].data.data(), 0, 3 << 20, numbers.data());
  size_t zeros = 0;
  for (double v : numbers) square += v * v / 4096, zeros += v == 0;
  EXPECT_NEAR(square / static_cast<double>(numbers.size()), 1, 0.01);
  EXPECT_LT(zeros, numbers.size() / 1000);
  // Rows differ: the block that repeats is no multiple of a row.
  EXPECT_NE(std::vector<double>(numbers.begin(), numbers.begin() + 64),
            std::vector<double>(numbers.begin() + (1 << 20), numbers.begin() + (1 << 20) + 64));
  EXPECT_EQ(operand_bytes(p), 3.0 * (1 << 20) + 5.0 * (1 << 20) + 15 + 4 + 20 + 4);
}

TEST(TimedOperands, ReachAsFarAsTheStrides) {
  Operand q = dense_operand({2, 256, 16, 72}, Element::f16);
  q.strides = {256 * 16 * 80, 16 * 80, 80, 1};
  const Problem p{.op = "attention", .in = {q, q, q}, .out = {dense_operand({2, 256, 16, 72}, Element::f16)}};
  EXPECT_EQ(random_bytes(p, 1).in[0].data.size(), static_cast<size_t>(2 * (2 * 256 * 16 * 80 - 8)));
}

}  // namespace
}  // namespace tessera
