// SPDX-License-Identifier: Apache-2.0
// Models are told apart by their work, and one model is not split by precision, padding or fused layers.
#include <gtest/gtest.h>

#include "explain/explain.h"
#include "explain/test_profiles.h"

namespace tessera {
namespace {

// Six GEMMs of `gflop` each in layers of this name, by an engine.
Profile engine(const std::string& model, const std::string& layer, double gflop, double us = 100) {
  Profile p = profile({});
  p.source = "tessera", p.model = model, p.machine = "a GPU", p.batch = 1;
  for (int i = 0; i < 6; ++i) {
    p.kernels.push_back(kernel("matmul/sm90", KernelClass::kGemm, "fp16", 1, us));
    p.kernels.back().layer = layer + std::to_string(i);
    p.kernels.back().flops = gflop * 1e9;
  }
  return p;
}

void expect_other(const Profile& a, const Profile& b, const std::string& words) {
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_TRUE(e.other_model);
  EXPECT_FALSE(e.speedup || e.latency_speedup);
  EXPECT_TRUE(e.ladder.empty() && e.recommendations.empty() && e.changes.all.empty());
  EXPECT_NE(e.answer.find(words), std::string::npos) << e.answer;
  EXPECT_EQ(e.answer, e.no_speedup + ".");
  const auto json = nlohmann::json::parse(explanation_json(e));
  EXPECT_TRUE(json["speedup"].is_null());
  EXPECT_EQ(json["no_speedup"], e.no_speedup);
}

void expect_same(const Profile& a, const Profile& b) {
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_FALSE(e.other_model) << e.answer;
  EXPECT_TRUE(e.speedup);
  EXPECT_FALSE(nlohmann::json::parse(explanation_json(e)).contains("no_speedup"));
}

TEST(SameModel, OthersHaveNoSpeedup) {
  expect_other(engine("vit", "blocks.", 2), engine("bert", "encoder.", 0.5),
               "A and B are different models: A (vit) multiplies 12.00 GFLOP a sample in 6 GEMMs and attentions, "
               "B (bert) multiplies 3.00 GFLOP");
  expect_other(engine("main_graph", "blocks.", 2), engine("main_graph", "encoder.", 0.5), "different models");
}

TEST(SameModel, OneModelAtAnotherSizeHasNone) {
  expect_other(engine("vit", "blocks.", 2), engine("vit", "blocks.", 2.6), "one model at different sizes");
}

TEST(SameModel, PrecisionAndBatchAreTheSameModel) {
  Profile b = engine("vit", "blocks.", 2, 50);
  for (KernelTime& k : b.kernels) k.precision = "fp8";
  expect_same(engine("vit", "blocks.", 2), b);
  b.batch = 8;
  for (KernelTime& k : b.kernels) k.flops = *k.flops * 8;
  expect_same(engine("vit", "blocks.", 2), b);
}

// A last block that computes only the rows that are read, heads that are padded on another machine.
TEST(SameModel, FewLayersMayDiffer) {
  Profile b = engine("vit", "blocks.", 2);
  b.kernels[4].flops = b.kernels[5].flops = 1e7;
  expect_same(engine("vit", "blocks.", 2), b);
  Profile padded = engine("vit", "blocks.", 2.6);
  padded.machine = "another GPU";
  expect_same(engine("vit", "blocks.", 2), padded);
}

// ONNX names layers otherwise than a checkpoint.
TEST(SameModel, OtherNamesOfTheSameWorkAreANote) {
  const Explanation e = explain(engine("main_graph", "node_", 2), engine("vit", "blocks.", 2));
  EXPECT_TRUE(e.speedup);
  EXPECT_TRUE(noted(e, "A is of the model main_graph and B of vit"));
}

TEST(SameModel, WhatIsNotToldSeparatesNothing) {
  expect_same(fp16(), nvfp4());
  Profile a = engine("vit", "blocks.", 2), b = engine("vit", "encoder.", 9);
  a.batch = 0;
  expect_same(a, b);
}

Profile of_gemms(const char* precision, double us) {
  return profile(
      {kernel("a_gemm", KernelClass::kGemm, precision, 12, us), kernel("a_norm", KernelClass::kNorm, "", 12, 10)});
}

TEST(SameModel, WhatNothingTellsIsSaid) {
  const Explanation e = explain(of_gemms("fp16", 100), of_gemms("fp8", 45));
  EXPECT_TRUE(noted(e, "nothing in the files says that A and B are runs of one model"));
  EXPECT_EQ(e.answer.find("promises"), std::string::npos) << e.answer;
  Profile a = of_gemms("fp16", 100), b = of_gemms("fp8", 45);
  a.model = b.model = "vit";
  EXPECT_FALSE(noted(explain(a, b), "nothing in the files says"));
}

// Twice as fast is what FP8 gives; ten times has another cause.
TEST(SameModel, MoreThanAPrecisionCanGiveIsNoPromise) {
  const Explanation e = explain(of_gemms("fp16", 100), of_gemms("fp8", 2));
  EXPECT_NE(
      e.answer.find("more than fp8 GEMMs alone can give (1.83x): other work changed too, or these are two models"),
      std::string::npos)
      << e.answer;
}

// Without flops other names of everything are enough.
TEST(SameModel, OtherLayersWithoutFlops) {
  Profile a = engine("vit", "blocks.", 2), b = engine("bert", "encoder.", 2);
  for (Profile* p : {&a, &b}) {
    for (KernelTime& k : p->kernels) k.flops.reset();
  }
  expect_other(a, b, "A and B are different models: A (vit), B (bert) has other layers");
}

}  // namespace
}  // namespace tessera
