// SPDX-License-Identifier: Apache-2.0
#include "profile/predict.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/matmul/matmul.h"
#include "plan/make_plan.h"
#include "profile/describe.h"
#include "traces/roofline.h"
#include "types/quantize_array.h"
#include "types/sparse24.h"

namespace tessera {
namespace {

// A layer that a chip's rate limits, and others that its memory does.
Engine engine_for(Arch target) {
  const auto g = parse_graph(R"(graph g {
  in %x: f16[8192,512]
  const %w: f16[1024,512] = seed(1)
  const %v: f16[8,1024] = seed(2)
  %a: f16[8192,1024] = matmul(%x, %w) @"large"
  %n: f16[8192,1024] = norm(%a) {eps=0.001, kind="layer"} @"norm"
  %y: f16[8192,8] = matmul(%n, %v) @"thin"
  out %y
}
)");
  EXPECT_TRUE(g.ok()) << g.status().message();
  Engine e;
  e.target = target;
  e.precision = "fp16";
  ConstantPool pool(e.constants);
  auto plan = make_plan(*g, {.name = "batch1", .target = target, .batch = 1}, pool);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (plan.ok()) e.plans = {*std::move(plan)};
  return e;
}

const KernelTime* find(const Profile& p, const std::string& layer) {
  for (const KernelTime& k : p.kernels) {
    if (k.layer == layer) return &k;
  }
  return nullptr;
}

TEST(Predict, TheLargerOfProductsAndMemory) {
  const Engine e = engine_for(Arch::sm90);
  ASSERT_EQ(e.plans.size(), 1u);
  const Chip& chip = *find_chip("NVIDIA H200");
  const auto p = predict_plan(e, e.plans[0], chip);
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_TRUE(p->predicted);
  EXPECT_FALSE(p->latency);
  EXPECT_EQ(p->machine, "NVIDIA H200");
  ASSERT_EQ(p->kernels.size(), e.plans[0].steps.size());
  const double rows = 8192, cols = 1024;
  ASSERT_TRUE(find(*p, "large") && find(*p, "norm") && find(*p, "thin"));
  EXPECT_DOUBLE_EQ(find(*p, "large")->us, 2 * rows * cols * 512 / 989.4e12 * 1e6) << "products";
  EXPECT_DOUBLE_EQ(find(*p, "norm")->us, 2 * rows * cols * 2 / 4.8e12 * 1e6) << "in and out";
  EXPECT_DOUBLE_EQ(find(*p, "thin")->us, (rows * cols + 8 * cols + rows * 8) * 2 / 4.8e12 * 1e6) << "memory";
  ASSERT_FALSE(p->notes.empty());
  EXPECT_NE(p->notes[0].find("times are predicted from the data of NVIDIA H200, not measured"), std::string::npos);
  // It stays marked wherever it goes.
  const auto again = parse_profile(profile_json(*p));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_TRUE(again->predicted);
}

// On Hopper sparse wgmma has twice the dense rate; a CPU puts the zeros back.
TEST(Predict, SparseLayersHaveTheSparseRate) {
  Engine e;
  e.target = Arch::sm90;
  const int64_t rows = 8192, cols = 1024, depth = 2048;
  std::vector<float> w(static_cast<size_t>(cols * depth));
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 37 % 101) - 50.5f;
  prune24(w.data(), cols, depth);
  QuantizedArray q = quantize_array(Element::f16, w.data(), cols, depth).value();
  Graph g;
  g.values.resize(3);
  g.values[0].name = "x", g.values[0].type = {.shape = {rows, depth}, .quant = Element::f16};
  g.values[1].name = "y", g.values[1].type = {.shape = {rows, cols}, .quant = Element::f16};
  g.values[2].name = "w", g.values[2].type = {.shape = {cols, depth}, .quant = Element::f16};
  g.values[2].constant = true, g.values[2].data = Bytes::own(std::move(q.codes));
  g.inputs = {0}, g.outputs = {1};
  Node node;
  node.name = "large", node.op = "matmul", node.inputs = {0, 2}, node.outputs = {1};
  node.attrs.set(kSparse24, int64_t{1});
  g.nodes = {node};
  for (const Arch target : {Arch::sm90, Arch::cpu}) {
    e.plans.clear();
    ConstantPool pool(e.constants);
    auto plan = make_plan(g, {.name = "batch1", .target = target, .batch = 1}, pool);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    e.plans = {*std::move(plan)};
    const Profile described = describe_plan(e, e.plans[0], "");
    EXPECT_EQ(described.making, "2:4");
    ASSERT_FALSE(described.kernels.empty());
    const KernelTime* large = find(described, "large");
    ASSERT_NE(large, nullptr);
    EXPECT_EQ(large->sparsity, target == Arch::sm90 ? "2:4" : "") << large->name;
    if (target != Arch::sm90) continue;
    const auto p = predict_plan(e, e.plans[0], *find_chip("NVIDIA H200"));
    ASSERT_TRUE(p.ok()) << p.status().message();
    EXPECT_DOUBLE_EQ(find(*p, "large")->us, 2.0 * rows * cols * depth / (2 * 989.4e12) * 1e6);
    EXPECT_EQ(rate_of(*p->ceilings, "fp8 2:4"), 2 * 1978.9e12);
    const auto again = parse_profile(profile_json(*p));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(find(*again, "large")->sparsity, "2:4");
    EXPECT_EQ(again->making, "2:4");
  }
}

TEST(Predict, SlowerMemoryTakesLonger) {
  const Engine e = engine_for(Arch::sm90);
  const auto h200 = predict_plan(e, e.plans[0], *find_chip("NVIDIA H200")),
             h100 = predict_plan(e, e.plans[0], *find_chip("NVIDIA H100 80GB HBM3"));
  ASSERT_TRUE(h200.ok() && h100.ok());
  EXPECT_DOUBLE_EQ(find(*h100, "large")->us, find(*h200, "large")->us);
  EXPECT_NEAR(find(*h100, "norm")->us / find(*h200, "norm")->us, 4.8 / 3.35, 1e-9);
}

TEST(Predict, PlansOfAnotherArchAreRefused) {
  const Engine e = engine_for(Arch::cpu);
  const auto p = predict_plan(e, e.plans[0], *find_chip("NVIDIA H200"));
  ASSERT_FALSE(p.ok());
  EXPECT_NE(p.status().message().find("the plan is for cpu, and the chip 'NVIDIA H200' runs sm90"), std::string::npos)
      << p.status().message();
  EXPECT_TRUE(predict_plan(engine_for(Arch::cuda), engine_for(Arch::cuda).plans[0], *find_chip("NVIDIA H200")).ok())
      << "every NVIDIA GPU runs cuda plans";
}

TEST(Predict, ChipsByTheirNames) {
  EXPECT_EQ(pick_chip("NVIDIA H200").value()->name, std::string("NVIDIA H200"));
  EXPECT_EQ(pick_chip("h100").value()->name, std::string("NVIDIA H100 80GB HBM3"));
  const auto both = pick_chip("nvidia"), none = pick_chip("abacus"), empty = pick_chip("");
  ASSERT_FALSE(both.ok() || none.ok() || empty.ok());
  EXPECT_NE(both.status().message().find("more than one chip is called 'nvidia'; there are 'NVIDIA H200'"),
            std::string::npos);
  EXPECT_NE(none.status().message().find("no chip is called 'abacus'; there are 'NVIDIA H200'"), std::string::npos);
}

}  // namespace
}  // namespace tessera
