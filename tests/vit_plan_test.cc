// SPDX-License-Identifier: Apache-2.0
// What a ViT becomes on Hopper: seven kernels per layer, nothing that only moves, converts or adds, and one row per
// image where only the class token is read.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "compile/compile.h"
#include "models/zoo.h"
#include "plan/count_copies.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 64, kLayers = 2, kTokens = 17;

Graph vit(const std::string& name, int64_t batch, const ZooSizes& sizes = {}) {
  const auto onnx = zoo_onnx(name, 1, sizes);
  EXPECT_TRUE(onnx.ok()) << onnx.status().message();
  const std::string path = testing::TempDir() + "/" + name + ".onnx";
  std::ofstream(path, std::ios::binary) << *onnx;
  auto graph = load_model(path, batch, {});
  std::filesystem::remove(path);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return std::move(graph).value();
}

Plan plan_of(const Graph& graph, const std::string& precision, Arch target, bool golden = false) {
  Ranges ranges;
  for (const Value& v : graph.values) ranges.values[v.name] = 1.0f;
  Engine engine;
  ConstantPool pool(engine.constants);
  LowerOptions lowering;
  lowering.types.precision = precision;
  lowering.types.ranges = &ranges;
  lowering.plan.target = target;
  lowering.plan.batch = kBatch;
  lowering.plan.as_reference = golden;
  auto plan = lower(graph, lowering, pool);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return std::move(plan).value();
}

std::string ops_of(const Plan& plan) {
  std::string ops;
  for (const PlanStep& s : plan.steps) ops += s.op + " ";
  return ops;
}

const Operand& result_of(const Plan& plan, const std::string& layer) {
  for (const PlanStep& s : plan.steps) {
    if (s.layer == layer) return plan.tensors[static_cast<size_t>(s.out[0])].desc;
  }
  ADD_FAILURE() << layer;
  return plan.tensors[0].desc;
}

TEST(VitPlan, HasSevenStepsPerLayerOnHopper) {
  const Graph graph = vit("vit-tiny-test", kBatch);
  std::string wanted = "concat matmul ";  // patches beside a row of zeros, then tokens with their positions
  for (int64_t i = 0; i < kLayers; ++i) wanted += "norm matmul attention matmul norm matmul matmul ";
  wanted += "norm matmul copy ";  // logits reach the caller's buffer
  for (const char* precision : {"fp8", "fp16", "bf16"}) {
    const Plan plan = plan_of(graph, precision, Arch::sm90);
    EXPECT_EQ(ops_of(plan), wanted) << precision;
    EXPECT_EQ(count_copies(plan).casts, 0) << precision;
  }
}

TEST(VitPlan, ComputesOneRowPerImageAfterTheLastAttention) {
  const Graph graph = vit("vit-tiny-test", kBatch);
  const Plan plan = plan_of(graph, "fp8", Arch::sm90);
  const std::string last = cat("blocks.", kLayers - 1, "."), before = cat("blocks.", kLayers - 2, ".");
  EXPECT_EQ(result_of(plan, last + "attn.qkv").shape, (Shape{kBatch, kTokens, 3 * 64}))
      << "keys and values of all tokens";
  EXPECT_EQ(result_of(plan, last + "attn.proj").shape, (Shape{kBatch, 1, 64}));
  EXPECT_EQ(result_of(plan, last + "norm2").shape, (Shape{kBatch, 1, 64}));
  EXPECT_EQ(result_of(plan, last + "mlp.fc1").shape, (Shape{kBatch, 1, 128}));
  EXPECT_EQ(result_of(plan, last + "mlp.fc2").shape, (Shape{kBatch, 1, 64}));
  EXPECT_EQ(result_of(plan, before + "mlp.fc2").shape, (Shape{kBatch, kTokens, 64}));
  for (const PlanStep& s : plan.steps) {
    if (s.op != "attention") continue;
    const bool first = s.layer == "attention";
    EXPECT_EQ(plan.tensors[static_cast<size_t>(s.in[0])].desc.shape[1], first ? kTokens : 1) << s.layer;
    EXPECT_EQ(plan.tensors[static_cast<size_t>(s.in[1])].desc.shape[1], kTokens) << s.layer;
  }
}

TEST(VitPlan, KeepsEveryRowWhereTheMeanOfAllTokensIsRead) {
  const Graph graph = vit("vit-b-256", 1);
  for (const Node& n : graph.nodes) {
    if (n.op != "norm" && n.op != "attention") continue;
    EXPECT_EQ(graph.at(n.outputs[0]).type.shape[1], 256) << n.name;
  }
}

TEST(VitPlan, TakesTheMeanOfAllTokensInTheLastNorm) {
  const Graph graph = vit("vit-b-256", kBatch, {.depth = 1});
  std::string pooled;
  for (const Node& n : graph.nodes) {
    if (n.op == "reduce") pooled = graph.at(n.outputs[0]).name;
  }
  for (const char* precision : {"fp8", "fp16", "bf16"}) {
    for (const bool golden : {false, true}) {
      const Plan plan = plan_of(graph, precision, Arch::sm90, golden);
      ASSERT_GE(plan.steps.size(), 3u);
      EXPECT_TRUE(ops_of(plan).ends_with("norm matmul copy ")) << precision << ": " << ops_of(plan);
      const PlanStep& norm = plan.steps[plan.steps.size() - 3];
      EXPECT_EQ(norm.variant, golden ? "norm/reference" : "norm/sm90_pooled");
      EXPECT_EQ(norm.layer, "norm");
      const PlanTensor& mean = plan.tensors[static_cast<size_t>(norm.out[0])];
      EXPECT_EQ(mean.desc.shape, (Shape{kBatch, 768}));
      EXPECT_EQ(mean.name, pooled) << "ranges and reports know it so";
      EXPECT_EQ(norm.then.find(StepKind::quantize) != nullptr, mean.desc.type.scaled());
    }
  }
  // What calibration measures on the CPU is every value of the model.
  EXPECT_NE(ops_of(plan_of(graph, "fp32", Arch::cpu)).find("norm reduce matmul"), std::string::npos);
}

}  // namespace
}  // namespace tessera
