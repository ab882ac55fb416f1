// SPDX-License-Identifier: Apache-2.0
// Layers whose program no kernel of Hopper runs: they keep the precision that was asked for, and the steps come after
// them.
#include <gtest/gtest.h>

#include <algorithm>

#include "calibrate/calibrate.h"
#include "compile/compile.h"
#include "ir/text.h"
#include "rewrite/canonicalise.h"
#include "verify/golden.h"

namespace tessera {
namespace {

// int8 on wgmma runs GELUs, silu and relu, and writes 16 bits or int8.
constexpr const char* kTanh = R"(graph tanh {
  in %image: f32[3,40,32]
  const %we: f32[64,32] = seed(7)
  const %gain: f32[64] = seed(1)
  const %w1: f32[96,64] = seed(2)
  const %b1: f32[96] = seed(3)
  const %w2: f32[64,96] = seed(4)
  const %b2: f32[64] = seed(5)
  %x: f32[3,40,64] = matmul(%image, %we) @"embed"
  %n: f32[3,40,64] = norm(%x, %gain) {eps=0.00001, kind="rms"} @"norm"
  %h0: f32[3,40,96] = matmul(%n, %w1) @"mlp.fc1"
  %h: f32[3,40,96] = map(%h0, %b1) {fn="add"}
  %a: f32[3,40,96] = map(%h) {fn="tanh"} @"mlp.act"
  %d0: f32[3,40,64] = matmul(%a, %w2) @"mlp.fc2"
  %y: f32[3,40,64] = map(%d0, %b2) {fn="add"}
  out %y
})";

struct Built {
  Graph written, canonical;
  Engine engine;  // the plan and the golden one
};

Built build(const std::string& precision, const std::vector<Allowance>& allow = {}) {
  Built b;
  auto graph = parse_graph(kTanh);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  b.written = b.canonical = *graph;
  EXPECT_TRUE(canonicalise(b.canonical).ok());
  const auto ranges = calibrate(b.canonical, {.quiet = true});  // of seeded random inputs
  EXPECT_TRUE(ranges.ok()) << ranges.status().message();
  LowerOptions lowering;
  lowering.types.precision = precision;
  lowering.types.allow = allow;
  lowering.types.ranges = &*ranges;
  lowering.plan.target = Arch::sm90;
  lowering.plan.batch = 3;
  b.engine.target = Arch::sm90;
  ConstantPool pool(b.engine.constants);
  for (const bool golden : {false, true}) {
    lowering.plan.as_reference = golden;
    lowering.plan.name = golden ? "golden" : "batch3";
    auto plan = lower(b.canonical, lowering, pool);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (plan.ok()) b.engine.plans.push_back(*std::move(plan));
  }
  return b;
}

std::string text_of(const Plan& plan) {
  std::string text;
  for (const PlanStep& s : plan.steps) {
    text += cat(s.layer, " ", s.op, s.op == "map" ? "=" + s.attrs.word("fn") : "");
    for (const Step& step : s.then.steps) text += cat(" ", name_of(step.kind));
    text += cat(" ", to_string(plan.tensors[static_cast<size_t>(s.out[0])].desc.type), "\n");
  }
  return text;
}

// fc2 makes the model's result, so that it counts as a head.
const std::vector<Allowance> kAll = {{"mlp.*", "int8"}};

TEST(UnfusedPlan, StepsThatNoKernelRunsComeAfterTheLayer) {
  const Built b = build("int8", kAll);
  ASSERT_EQ(b.engine.plans.size(), 2u);
  const std::string text = text_of(b.engine.plans[0]);
  EXPECT_NE(text.find("mlp.fc1 matmul bias f16\nmlp.fc1.act map=tanh f16\n"), std::string::npos) << text;
  EXPECT_NE(text.find("copy i8:tensor(f32)\nmlp.fc2 matmul f16\nmlp.fc2.bias map=add f32\n"), std::string::npos)
      << text;
  for (const PlanStep& s : b.engine.plans[0].steps) {
    EXPECT_TRUE(!s.layer.starts_with("mlp") || s.op != "matmul" || s.computed == "int8") << s.layer;
  }
}

// Kernels that run the whole program keep it.
TEST(UnfusedPlan, OtherPrecisionsKeepTheirPrograms) {
  for (const std::string precision : {"fp16", "fp8"}) {
    const std::string text = text_of(build(precision, {{"mlp.*", precision}}).engine.plans[0]);
    EXPECT_EQ(text.find("map"), std::string::npos) << text;
  }
}

// The model's layer and what is left of it with the steps behind it are the same, and only then.
TEST(UnfusedPlan, IsJudgedAsTheModelHasIt) {
  Built b = build("int8", kAll);
  const ModelGraphs graphs{.written = &b.written, .canonical = &b.canonical, .prepared = &b.canonical};
  const auto golden = make_golden(b.engine, {.quiet = true}, &graphs, nullptr);
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  for (Plan& plan : b.engine.plans) {
    for (PlanStep& s : plan.steps) {
      if (s.layer == "mlp.fc1.act") s.attrs.set("fn", std::string("abs"));
    }
  }
  const auto wrong = make_golden(b.engine, {.quiet = true}, &graphs, nullptr);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("it computes matmul then bias abs where the model has matmul then bias tanh"),
            std::string::npos)
      << wrong.status().message();
}

}  // namespace
}  // namespace tessera
