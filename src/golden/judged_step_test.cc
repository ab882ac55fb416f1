// SPDX-License-Identifier: Apache-2.0
// Engine files whose plans are each in order but do not belong together: `verify` says so in a sentence and reads
// nothing outside what either plan has.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "plan/engine_file.h"
#include "plan/make_plan.h"
#include "verify/verify.h"

namespace tessera {
namespace {

constexpr int64_t kIn = 8, kOut = 5;

PlanTensor tensor(const std::string& name, const Shape& shape, Storage storage, int64_t index, int64_t offset = 0) {
  PlanTensor t;
  t.name = name;
  t.desc = dense_operand(shape, Element::f32, storage == Storage::kConstant);
  t.storage = storage;
  t.index = index;
  t.offset_bytes = offset;
  return t;
}

// h = x w1^T + b, y = h w2^T.
Plan two_layers(const std::string& name, int64_t batch, int64_t hidden, int64_t first_constant) {
  Plan p{.name = name, .arch = Arch::ref, .batch = batch, .arena_bytes = 4 * batch * hidden};
  p.tensors = {tensor("x", {batch, kIn}, Storage::kInput, 0),
               tensor("w1", {hidden, kIn}, Storage::kConstant, first_constant),
               tensor("b", {hidden}, Storage::kConstant, first_constant + 1),
               tensor("h", {batch, hidden}, Storage::kArena, -1),
               tensor("w2", {kOut, hidden}, Storage::kConstant, first_constant + 2),
               tensor("y", {batch, kOut}, Storage::kOutput, 0)};
  PlanStep one{.layer = "one", .op = "matmul", .variant = "matmul/reference", .in = {0, 1, 2}, .out = {3}};
  one.then.steps = {{.kind = StepKind::bias, .operand = 2}};
  p.steps = {one, {.layer = "two", .op = "matmul", .variant = "matmul/reference", .in = {3, 4}, .out = {5}}};
  p.inputs = {{"x", 0}};
  p.outputs = {{"y", 5}};
  return p;
}

Bytes random_floats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Buffer b(static_cast<size_t>(4 * n));
  for (int64_t i = 0; i < n; ++i) {
    const float x = normal(random);
    std::memcpy(b.data() + 4 * i, &x, 4);
  }
  return Bytes::own(std::move(b));
}

void add_weights(Engine& e, int64_t hidden) {
  e.constants.push_back({"w1", random_floats(hidden * kIn, 1)});
  e.constants.push_back({"b", random_floats(hidden, 2)});
  e.constants.push_back({"w2", random_floats(kOut * hidden, 3)});
}

// No golden values: only the golden plan says what is right.
Engine engine_of(int64_t batch, int64_t golden_batch, int64_t hidden = 16, int64_t golden_hidden = 16) {
  Engine e;
  add_weights(e, hidden);
  if (golden_hidden != hidden) add_weights(e, golden_hidden);
  e.plans = {two_layers("main", batch, hidden, 0),
             two_layers("golden", golden_batch, golden_hidden, golden_hidden == hidden ? 0 : 3)};
  return e;
}

void expect_refused(const Engine& e, const std::string& says) {
  ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
  const auto report = verify_engine(e);
  ASSERT_FALSE(report.ok()) << says;
  EXPECT_EQ(report.status().code(), Code::kBadInput);
  EXPECT_NE(report.status().message().find(says), std::string::npos) << report.status().message();
}

TEST(JudgedStepTest, PlansOfOneModelAreCompared) {
  for (const auto& [batch, golden_batch] : {std::pair{1, 1}, {1, 3}, {3, 1}, {4, 3}}) {
    const Engine e = engine_of(batch, golden_batch);
    ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
    const auto report = verify_engine(e, {.samples = 5});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_TRUE(report->ok) << report->sentence;
    EXPECT_EQ(report->layers.size(), 2u);
  }
}

TEST(JudgedStepTest, GoldenConstantsAreReadInTheirOwnLayout) {
  Engine e = engine_of(2, 2, /*hidden=*/20, /*golden_hidden=*/20);
  e.constants.push_back(
      {"packed",
       Bytes::own(arrange_codes(Layout::kPanels16, Element::f32, 20, kIn, e.constants[0].data.data()).value())});
  for (size_t plan : {0, 1}) {
    Engine packed = e;
    PlanTensor& w = packed.plans[plan].tensors[1];
    w.desc.layout = Layout::kPanels16;
    w.index = 3;
    ASSERT_TRUE(check_engine(packed).ok()) << check_engine(packed).message();
    const auto report = verify_engine(packed);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_TRUE(report->ok) << report->sentence;
  }
}

// Scales of a golden operand that is no constant are read as this plan's lie: 16 rows, though there is only one.
TEST(JudgedStepTest, GoldenScalesInAnotherLayout) {
  Engine e = engine_of(1, 1, 1, 1);
  const QuantType type = *parse_quant_type("i8:block8(f32)");
  e.constants[0].data = Bytes::own(Buffer(16 * kIn));
  const float scale = 0.5f;
  Buffer rows(4), packed(4 * 16);
  std::memcpy(rows.data(), &scale, 4);
  std::memcpy(packed.data(), &scale, 4);
  e.constants.push_back({"w1 scale", Bytes::own(std::move(rows))});
  e.constants.push_back({"w1 scale, packed", Bytes::own(std::move(packed))});
  for (size_t plan : {0, 1}) {
    Plan& p = e.plans[plan];
    p.tensors[1].desc = dense_operand({1, kIn}, type, true);
    p.tensors[1].scale = 6;
    p.tensors.push_back(tensor("w1 scale", {1, 1}, Storage::kConstant, 3));
  }
  Plan &main = e.plans[0], &golden = e.plans[1];
  main.tensors[1].desc.layout = {Layout::kPanels16, Layout::kPanels16};
  main.tensors[6].desc.layout = Layout::kPanels16;
  main.tensors[6].index = 4;
  ASSERT_TRUE(verify_engine(e).ok()) << verify_engine(e).status().message();
  golden.arena_bytes = 256;
  golden.tensors[1].storage = Storage::kArena, golden.tensors[1].index = -1, golden.tensors[1].offset_bytes = 128;
  golden.tensors[1].desc.constant = false;
  expect_refused(e, "the scales of the golden plan's 'w1' lie in 'rows', here in 'panels16'");
}

TEST(JudgedStepTest, PortsOfAnotherSize) {
  for (const size_t plan : {0, 1}) {
    Engine e = engine_of(1, 1);
    e.constants[0].data = random_floats(16 * 64, 1);
    PlanTensor &x = e.plans[plan].tensors[0], &w = e.plans[plan].tensors[1];
    x.desc = dense_operand({1, 64}, Element::f32);
    w.desc = dense_operand({16, 64}, Element::f32, true);
    EXPECT_NE(check_engine(e).message().find("plan 'main': inputs: 'x' f32"), std::string::npos)
        << check_engine(e).message();
  }
  Engine named = engine_of(1, 1);
  named.plans[1].outputs[0].name = "z";
  EXPECT_NE(check_engine(named).message().find("plan 'main': outputs: 'y'"), std::string::npos);
}

TEST(JudgedStepTest, SamplesAreWholeBytes) {
  Engine e = engine_of(1, 1);
  for (Plan& p : e.plans) p.tensors[0].desc = dense_operand({1, kIn}, Element::e2m1);
  EXPECT_NE(check_engine(e).message().find("are no whole bytes"), std::string::npos) << check_engine(e).message();
}

TEST(JudgedStepTest, AProgramThatReadsAnOperandOnlyTheGoldenPlanHas) {
  Engine e = engine_of(2, 2);
  e.plans[0].steps[0].in = {0, 1};
  e.plans[0].steps[0].then = {};
  expect_refused(e, "step 0 ('one'): it has 2 operands, 3 in the golden plan");
  e.plans[0].steps[0].in = {0, 1, -1};
  expect_refused(e, "operand 2 is present in only one of this plan and the golden plan");
}

TEST(JudgedStepTest, AnotherOp) {
  Engine e = engine_of(2, 2, kIn, kIn);
  PlanStep& s = e.plans[1].steps[0];
  s.op = "softmax", s.variant = "softmax/reference", s.in = {0}, s.then = {};
  expect_refused(e, "step 0 ('one'): it is 'matmul', 'softmax' in the golden plan");
}

TEST(JudgedStepTest, WeightsOfAnotherShapeOrType) {
  // As many steps, the same ports: the golden plan's weights are smaller than the plan's, or larger.
  for (const auto& [hidden, golden_hidden] : {std::pair{1000, 4}, {4, 1000}}) {
    for (const auto& [batch, golden_batch] : {std::pair{1, 2}, {3, 1}}) {
      const Engine e = engine_of(batch, golden_batch, hidden, golden_hidden);
      ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
      const auto report = verify_engine(e);
      EXPECT_EQ(report.ok(), batch > golden_batch) << "not cut: each plan's own weights were read";
    }
  }
  expect_refused(engine_of(1, 1, 4, 1000), "the golden plan");
  Engine e = engine_of(1, 1);
  e.plans[1].tensors[1].desc = dense_operand({16, kIn}, Element::f16, true);
  expect_refused(e, "operand 1 is f32, f16 in the golden plan");
}

// A step that the golden plan does not have is judged by itself.
TEST(JudgedStepTest, AnotherNumberOfSteps) {
  Engine e = engine_of(1, 1);
  const PlanTensor mean = tensor("m", {1, 16}, Storage::kArena, -1, 4 * 16);
  for (Plan& p : e.plans) p.arena_bytes *= 2;
  e.plans[0].tensors.push_back(mean);
  PlanStep copy{.layer = "between", .op = "copy", .variant = "copy/reference", .in = {3}, .out = {6}};
  e.plans[0].steps.insert(e.plans[0].steps.begin() + 1, copy);
  e.plans[0].steps[2].in[0] = 6;
  ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
  const auto report = verify_engine(e);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->ok) << report->sentence;
  EXPECT_EQ(report->layers.size(), 3u);
}

}  // namespace
}  // namespace tessera
