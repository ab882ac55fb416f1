// SPDX-License-Identifier: Apache-2.0
// What a gated MLP becomes on Hopper: two matmuls, in whatever form the model spells it; layers that were asked for
// different precisions stay what was asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compile/compile.h"
#include "golden/golden_run.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

using testing::canonical;
using testing::relative_error;

constexpr const char* kTwoLayers = R"(graph two {
  in %image: f32[3,40,32]
  const %we: f32[64,32] = seed(7)
  const %gain: f32[64] = seed(1)
  const %wg: f32[96,64] = seed(2)
  const %wu: f32[96,64] = seed(3)
  const %wd: f32[64,96] = seed(4)
  const %wh: f32[16,64] = seed(5)
  %x: f32[3,40,64] = matmul(%image, %we) @"embed"
  %n: f32[3,40,64] = norm(%x, %gain) {eps=0.00001, kind="rms"} @"norm"
  %g: f32[3,40,96] = matmul(%n, %wg) @"mlp.gate_proj"
  %a: f32[3,40,96] = map(%g) {fn="gelu_tanh"} @"mlp.act"
  %u: f32[3,40,96] = matmul(%n, %wu) @"mlp.up_proj"
  %p: f32[3,40,96] = map(%a, %u) {fn="mul"} @"mlp.mul"
  %d: f32[3,40,64] = matmul(%p, %wd) @"mlp.down_proj"
  %r: f32[3,40,64] = map(%d, %x) {fn="add"} @"add"
  %n2: f32[3,40,64] = norm(%r, %gain) {eps=0.00001, kind="rms"} @"norm2"
  %y: f32[3,40,16] = matmul(%n2, %wh) @"head"
  out %y
})";

// The activated half is the first or the second.
std::string one_layer(bool second) {
  return cat(R"(graph one {
  in %image: f32[3,40,32]
  const %we: f32[64,32] = seed(7)
  const %gain: f32[64] = seed(1)
  const %w12: f32[192,64] = seed(2)
  const %b12: f32[192] = seed(6)
  const %wd: f32[64,96] = seed(4)
  const %wh: f32[16,64] = seed(5)
  %x: f32[3,40,64] = matmul(%image, %we) @"embed"
  %n: f32[3,40,64] = norm(%x, %gain) {eps=0.00001, kind="rms"} @"norm"
  %h0: f32[3,40,192] = matmul(%n, %w12) @"mlp.w12"
  %h: f32[3,40,192] = map(%h0, %b12) {fn="add"}
  %g: f32[3,40,96] = view(%h) {offset=)",
             second ? 96 : 0, R"(, strides=[7680,192,1]}
  %u: f32[3,40,96] = view(%h) {offset=)",
             second ? 0 : 96, R"(, strides=[7680,192,1]}
  %a: f32[3,40,96] = map(%g) {fn="silu"} @"mlp.act"
  %p: f32[3,40,96] = map(%a, %u) {fn="mul"} @"mlp.mul"
  %d: f32[3,40,64] = matmul(%p, %wd) @"mlp.w3"
  %r: f32[3,40,64] = map(%d, %x) {fn="add"} @"add"
  %n2: f32[3,40,64] = norm(%r, %gain) {eps=0.00001, kind="rms"} @"norm2"
  %y: f32[3,40,16] = matmul(%n2, %wh) @"head"
  out %y
})");
}

Result<Plan> plan_of(const Graph& graph, LowerOptions lowering, Engine& engine) {
  Ranges ranges;
  for (const Value& v : graph.values) ranges.values[v.name] = 4.0f;
  ConstantPool pool(engine.constants);
  lowering.types.ranges = &ranges;
  return lower(graph, lowering, pool);
}

Plan plan_for(const std::string& text, const std::string& precision, Arch target,
              const std::vector<Allowance>& allow = {}, bool promoted = false) {
  LowerOptions lowering;
  lowering.types.precision = precision;
  lowering.types.allow = allow;
  lowering.types.promoted = promoted;
  lowering.plan.target = target;
  Engine engine;
  auto plan = plan_of(canonical(text), lowering, engine);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return std::move(plan).value();
}

// The steps between the two norms.
std::vector<PlanStep> mlp_of(const Plan& plan) {
  std::vector<PlanStep> steps;
  bool inside = false;
  for (const PlanStep& s : plan.steps) {
    if (s.op == "norm") {
      inside = !inside;
    } else if (inside) {
      steps.push_back(s);
    }
  }
  return steps;
}

std::string kinds_of(const Program& then) {
  std::string kinds;
  for (const Step& s : then.steps) kinds += cat(kinds.empty() ? "" : " ", name_of(s.kind));
  return kinds;
}

TEST(GatedPlan, IsTwoMatmulsOnHopper) {
  for (const std::string& text : {std::string(kTwoLayers), one_layer(false), one_layer(true)}) {
    for (const std::string precision : {"fp16", "bf16", "fp8", "int8"}) {
      const std::vector<PlanStep> mlp = mlp_of(plan_for(text, precision, Arch::sm90));
      std::string names;
      for (const PlanStep& s : mlp) names += cat(s.layer, " (", s.variant, " ", kinds_of(s.then), ") ");
      ASSERT_EQ(mlp.size(), 2u) << precision << ": " << names;
      const bool two = text == kTwoLayers, codes = precision == "fp8" || precision == "int8";
      EXPECT_EQ(mlp[0].layer, two ? "mlp.gate_proj+mlp.up_proj" : "mlp.w12");
      EXPECT_EQ(kinds_of(mlp[0].then), cat(two ? "" : "bias ", "gate", codes ? " quantize" : ""));
      EXPECT_EQ(mlp[0].then.find(StepKind::gate)->fn, two ? Unary::gelu_tanh : Unary::silu);
      EXPECT_EQ(mlp[1].layer, two ? "mlp.down_proj" : "mlp.w3");
      for (const PlanStep& s : mlp) {
        EXPECT_EQ(s.op, "matmul");
        EXPECT_EQ(s.asked, precision);
        EXPECT_EQ(s.role, "block.mlp");
      }
      EXPECT_EQ(mlp[0].computed, precision == "fp8" ? "e4m3" : precision);
      EXPECT_EQ(mlp[0].stored, precision == "fp8"    ? "e4m3"
                               : precision == "int8" ? "i8"
                               : precision == "fp16" ? "f16"
                                                     : "bf16");
    }
  }
}

// As exporters write them: two layers (Llama, Gemma, EVA02), one that is cut into halves (DINOv2), EVA02's with a norm
// after the gate.
TEST(GatedPlan, FindsGatesInExportedModels) {
  for (const std::string name : {"llama_dyn18", "gemma_dyn20", "dinov2_swiglu_dyn20", "dinov2_swiglu_ts17",
                                 "eva02_dyn18", "eva02_ts17", "eva02_fused_dyn20"}) {
    LoadOptions options{.exact = false};
    if (name.starts_with("llama") || name.starts_with("gemma"))
      options.shapes = {{"input_ids", {2, 8}}, {"attention_mask", {2, 8}}};
    auto graph = load_model(cat(TS_SOURCE_DIR "/tests/data/models/", name, ".onnx"), 2, options);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    LowerOptions lowering;
    lowering.types.precision = "fp16";
    lowering.plan.target = Arch::sm90;
    Engine engine;
    const auto plan = plan_of(*graph, lowering, engine);
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status().message();
    int gates = 0, products = 0;
    std::string ops;
    for (const PlanStep& s : plan->steps) {
      gates += s.then.gated();
      products += s.op == "map" && s.attrs.word("fn") == "mul";
      ops += cat("\n", s.layer, " ", s.op, " ", kinds_of(s.then));
    }
    EXPECT_EQ(gates, 2) << name << ops;
    EXPECT_EQ(products, name.starts_with("gemma") ? 1 : 0) << name << ops;  // of its embedding, by a number
  }
}

// No kernel makes codes of the product on the way then: a copy does.
TEST(GatedPlan, KeepsLayersThatWereAskedForDifferentPrecisions) {
  for (const auto& [precision, element] : {std::pair<std::string, std::string>{"fp8", "e4m3"}, {"int8", "i8"}}) {
    std::map<std::string, std::string> stored;
    for (const PlanStep& s : mlp_of(plan_for(kTwoLayers, precision, Arch::sm90, {{"mlp.up_proj", "fp16"}}))) {
      EXPECT_FALSE(s.then.gated()) << s.layer;
      if (s.op == "matmul" || s.op == "copy") stored[s.layer] = s.stored;
    }
    std::map<std::string, std::string> want{
        {"mlp.gate_proj", element}, {"mlp.up_proj", "f16"}, {"mlp.down_proj", element}};
    if (precision == "int8") want["mlp.mul.quantize"] = "i8";  // map/cuda makes e4m3 itself
    for (const auto& [layer, type] : want) EXPECT_EQ(stored[layer], type) << layer;
  }
}

TEST(GatedPlan, KeepsLayersApartWhereNoKernelRunsAGate) {
  for (const PlanStep& s : plan_for(kTwoLayers, "fp16", Arch::cpu).steps) EXPECT_FALSE(s.then.gated()) << s.layer;
  const Plan promoted = plan_for(kTwoLayers, "fp8", Arch::sm90, {}, /*promoted=*/true);
  for (const PlanStep& s : promoted.steps) EXPECT_FALSE(s.then.gated()) << s.layer;
}

// By the references, with the gate and without: each of the 16-bit results on the way is off by half a unit of its last
// place at most, 2^-11 of itself; a gate saves three of them (both halves, their product), and what they leave on the
// way to the output is damped by the residual.
TEST(GatedPlan, ComputesWhatTheLayersDid) {
  for (const std::string& text : {std::string(kTwoLayers), one_layer(false), one_layer(true)}) {
    LowerOptions lowering;
    lowering.types.precision = "fp16";
    lowering.plan.batch = 3;
    lowering.plan.as_reference = true;
    std::vector<Outputs64> outputs;
    for (const Arch target : {Arch::sm90, Arch::cpu}) {
      lowering.plan.target = target;
      Engine engine;
      auto plan = plan_of(canonical(text), lowering, engine);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_EQ(
          std::any_of(plan->steps.begin(), plan->steps.end(), [](const PlanStep& step) { return step.then.gated(); }),
          target == Arch::sm90);
      const auto made = run_plan(engine, *plan, random_samples(*plan, 3, 5));
      ASSERT_TRUE(made.ok()) << made.status().message();
      outputs.push_back(*made);
    }
    EXPECT_GT(*std::max_element(outputs[1][0].begin(), outputs[1][0].end()), 0);
    EXPECT_LE(relative_error(outputs[0][0], outputs[1][0]), 3 * 0x1p-11);
  }
}

}  // namespace
}  // namespace tessera
