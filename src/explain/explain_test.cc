// SPDX-License-Identifier: Apache-2.0
// The published ViT-B case (FP16 against NVFP4, docs/explain.md) with every number that follows from its kernel tables,
// then mutations of it: what is not known may not be claimed, and nothing divides by zero.
#include "explain/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "explain/numbers.h"
#include "io/json.h"

namespace tessera {
namespace {

KernelTime kernel(const char* name, KernelClass kind, const char* precision, int64_t calls, double each_us) {
  KernelTime k;
  k.name = name;
  k.kernel_class = kind;
  k.precision = precision;
  k.calls = calls;
  k.us = static_cast<double>(calls) * each_us;
  return k;
}

Profile profile(std::vector<KernelTime> kernels, double total_us = 0) {
  Profile p;
  p.source = "trtexec";
  p.kernels = std::move(kernels);
  if (total_us > 0) p.kernels.push_back(kernel("other", KernelClass::kOther, "", 1, total_us - p.kernel_us()));
  return p;
}

Profile fp16() {
  return profile({kernel("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_a", KernelClass::kGemm, "fp16", 12, 188.3),
                  kernel("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_b", KernelClass::kGemm, "fp16", 12, 168.4),
                  kernel("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n", KernelClass::kGemm, "fp16", 12, 126.0),
                  kernel("sm80_xmma_gemm_f16f16_f16f32_f32_nn_n", KernelClass::kGemm, "fp16", 12, 47.5),
                  kernel("_gemm_mha_v2", KernelClass::kAttention, "", 12, 44.5),
                  kernel("__myl_AddCastMeanSubMul", KernelClass::kNorm, "", 22, 16.8)},
                 7600);
}

Profile nvfp4() {
  return profile({kernel("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n", KernelClass::kGemm, "fp16", 12, 120.8),
                  kernel("cutlass3x_sm120_bstensorop_ue4m3xe2m1", KernelClass::kGemm, "fp4", 36, 38.1),
                  kernel("__myl_DivCastErfCastAddMulMulResh", KernelClass::kElementwise, "", 12, 44.4),
                  kernel("_gemm_mha_v2", KernelClass::kAttention, "", 12, 44.0),
                  kernel("__myl_AddCastMeanSubMul", KernelClass::kNorm, "", 22, 17.2),
                  kernel("__myl_ReshReshCastMulReplCast", KernelClass::kConversion, "", 12, 13.4)},
                 5500);
}

const ClassTime& class_named(const Explanation& e, const std::string& name) {
  for (const ClassTime& t : e.classes) {
    if (t.name == name) return t;
  }
  static const ClassTime none;
  ADD_FAILURE() << "no class " << name;
  return none;
}

const Rung* rung_with(const Explanation& e, const std::string& words, char base) {
  for (const Rung& r : e.ladder) {
    if (r.base == base && r.name.find(words) != r.name.npos) return &r;
  }
  return nullptr;
}
double speedup_of(const Explanation& e, const std::string& words, char base = 'B') {
  const Rung* r = rung_with(e, words, base);
  EXPECT_NE(r, nullptr) << words;
  return r == nullptr ? 0 : r->speedup;
}

const Recommendation* recommended(const Explanation& e, const std::string& id) {
  for (const Recommendation& r : e.recommendations) {
    if (r.id == id) return &r;
  }
  return nullptr;
}

bool noted(const Explanation& e, const std::string& words) {
  for (const std::string& n : e.notes) {
    if (n.find(words) != n.npos) return true;
  }
  return false;
}

// Every number that an explanation holds is finite, and its JSON reads back.
void expect_sound(const Explanation& e) {
  const auto finite = [](double x, const char* what) { EXPECT_TRUE(std::isfinite(x)) << what; };
  for (const ClassTime& t : e.classes) finite(t.a_share, "share"), finite(t.b_share, "share");
  double before = 0;
  for (const Rung& r : e.ladder) {
    finite(r.speedup, r.name.c_str());
    EXPECT_GT(r.ms, 0) << r.name;
    if (r.base == e.ladder.back().base) {
      EXPECT_GE(r.speedup, before) << "a rung below the one before: " << r.name;
      before = r.speedup;
    }
  }
  for (const Recommendation& r : e.recommendations) {
    finite(r.predicted, r.id.c_str());
    EXPECT_GT(r.predicted, 0) << r.id;
    EXPECT_GT(r.gain_ms, 0) << r.id;
    EXPECT_FALSE(r.flag.empty()) << r.id;
    EXPECT_FALSE(r.because.empty()) << r.id;
    EXPECT_NE(r.arithmetic.find(" = " + times(r.predicted)), std::string::npos) << r.arithmetic;
  }
  EXPECT_FALSE(e.answer.empty());
  const std::string text = explanation_json(e);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("inf\""), std::string::npos);
  EXPECT_TRUE(parse_json(text).ok());
}

TEST(Explain, TheSpeedupIsThatOfKernelTime) {
  const Explanation e = explain(fp16(), nvfp4());
  expect_sound(e);
  EXPECT_NEAR(*e.speedup, 1.382, 0.001);
  EXPECT_FALSE(e.latency_speedup);
  EXPECT_NEAR(class_named(e, "gemm").a_share, 0.837, 0.001);
  EXPECT_NEAR(class_named(e, "gemm").a_ms, 6.362, 0.001);
  EXPECT_NEAR(class_named(e, "gemm").b_ms, 2.821, 0.001);
  EXPECT_TRUE(e.answer.starts_with("1.38x on kernel time")) << e.answer;
  EXPECT_NE(e.answer.find("not 4x"), std::string::npos) << e.answer;
  EXPECT_NE(e.answer.find("grew from 1.24 ms to 2.68 ms"), std::string::npos) << e.answer;
}

TEST(Explain, TheLadderHasItsArithmetic) {
  const Explanation e = explain(fp16(), nvfp4());
  const Rung* ceiling = rung_with(e, "the rest as in A", 'A');
  ASSERT_NE(ceiling, nullptr);
  EXPECT_NEAR(ceiling->speedup, 2.69, 0.005);
  EXPECT_EQ(ceiling->arithmetic, "6.36 ms / 4 + 1.24 ms = 2.83 ms");
  EXPECT_TRUE(ceiling->nominal);
  EXPECT_NEAR(speedup_of(e, "now"), 1.38, 0.005);
  EXPECT_NEAR(speedup_of(e, "rate that fp4 reaches here"), 1.705, 0.01);
  EXPECT_EQ(rung_with(e, "rate that fp4 reaches here", 'B')->arithmetic, "1.37 ms / 0.772 + 2.68 ms = 4.46 ms");
  EXPECT_FALSE(rung_with(e, "rate that fp4 reaches here", 'B')->nominal);
  EXPECT_NEAR(speedup_of(e, "at the chip's rate (4x)"), 1.78, 0.005);
  EXPECT_NEAR(speedup_of(e, "attention too (4x)"), 7600 / (6362.4 / 4 + 534.0 / 4 + 2150.6), 0.005);
  EXPECT_NEAR(speedup_of(e, "conversions gone"), 7600 / (6362.4 / 4 + 534.0 / 4 + 2150.6 - 160.8), 0.005);
  EXPECT_NEAR(speedup_of(e, "no more work outside"), 7600 / (6362.4 / 4 + 534.0 / 4 + 703.6), 0.005);
  EXPECT_NEAR(speedup_of(e, "nothing memory-bound"), 7600 / (6362.4 / 4 + 534.0 / 4), 0.005);
}

TEST(Explain, CoverageByTimeIsNotCoverageByFlops) {
  const Explanation e = explain(fp16(), nvfp4());
  EXPECT_NEAR(*e.b_coverage.time.of("fp4"), 0.486, 0.001);
  EXPECT_EQ(e.b_coverage.time.origin, Origin::kFromFiles);
  EXPECT_NEAR(*e.b_coverage.flops.of("fp4"), 0.772, 0.001);
  EXPECT_NEAR(*e.b_coverage.flops.of("fp16"), 0.228, 0.001);
  EXPECT_EQ(e.b_coverage.flops.origin, Origin::kEstimated);
  EXPECT_EQ(e.b_coverage.bytes.origin, Origin::kNotKnown);
  EXPECT_EQ(*e.a_coverage.flops.of("fp16"), 1.0);
  const auto json = nlohmann::json::parse(explanation_json(e));
  EXPECT_NEAR(json["coverage"]["flops"]["fp4"].get<double>(), 0.772, 0.001);
  EXPECT_TRUE(json["coverage"]["bytes"].is_null());
  EXPECT_NE(json["coverage"]["how"]["flops"].get<std::string>().find("estimated from A's rate"), std::string::npos);
}

TEST(Explain, AttentionIsUnchangedAndTheRestMoreThanDoubled) {
  const Explanation e = explain(fp16(), nvfp4());
  ASSERT_TRUE(e.attention);
  EXPECT_NEAR(e.attention->a_us, 534, 0.1);
  EXPECT_NEAR(e.attention->b_us, 528, 0.1);
  EXPECT_TRUE(e.attention->unchanged);
  EXPECT_NEAR(e.growth.a_ms, 1.238, 0.001);
  EXPECT_NEAR(e.growth.b_ms, 2.679, 0.001);
  ASSERT_FALSE(e.growth.grown.empty());
  EXPECT_EQ(e.growth.grown[0].name, "other");
  EXPECT_EQ(e.growth.grown[1].name, "elementwise");
}

TEST(Explain, TheFallbackIsNamed) {
  const Explanation e = explain(fp16(), nvfp4());
  EXPECT_EQ(e.asked, "fp4");
  EXPECT_NE(e.asked_how.find("10 %"), std::string::npos);
  ASSERT_EQ(e.fallbacks.size(), 1u);
  EXPECT_EQ(e.fallbacks[0].kernel, "sm80_xmma_gemm_f16f16_f16f16_f16_nn_n");
  EXPECT_EQ(e.fallbacks[0].precision, "fp16");
  EXPECT_NEAR(e.fallbacks[0].share, 0.2636, 0.0005);
  EXPECT_EQ(e.fallbacks[0].calls, 12);
}

TEST(Explain, FusingComesBeforeQuantizingTheRest) {
  const Explanation e = explain(fp16(), nvfp4());
  ASSERT_GE(e.recommendations.size(), 2u);
  EXPECT_EQ(e.recommendations[0].id, "fuse");
  EXPECT_EQ(e.recommendations[0].what, "fuse GELU, quantization and conversions into the kernels around them");
  EXPECT_NEAR(e.recommendations[0].predicted, 1.875, 0.001);
  EXPECT_NEAR(e.recommendations[0].gain_ms, 1.447, 0.001);
  EXPECT_EQ(e.recommendations[0].confidence, Confidence::kMedium) << e.recommendations[0].because;
  EXPECT_EQ(e.recommendations[1].id, "quantize");
  EXPECT_NEAR(e.recommendations[1].predicted, 1.705, 0.005);
  EXPECT_NE(e.recommendations[1].what.find("sm80_xmma_gemm"), std::string::npos);
  EXPECT_NE(e.recommendations[1].flag.find("--precision nvfp4"), std::string::npos) << e.recommendations[1].flag;
  EXPECT_NE(e.recommendations[1].flag.find("--stronglyTyped"), std::string::npos);
  ASSERT_FALSE(e.combinations.empty());
  EXPECT_EQ(e.combinations[0].of, (std::vector<size_t>{0, 1}));
  EXPECT_NEAR(e.combinations[0].predicted, 2.526, 0.002);
}

TEST(Explain, AttentionInFp8IsAtMostTheRatioOfRates) {
  const Explanation e = explain(fp16(), nvfp4());
  const Recommendation* r = recommended(e, "attention");
  ASSERT_NE(r, nullptr);
  EXPECT_NEAR(r->predicted, 7600 / (5500 - 528.0 / 2), 0.001);
  EXPECT_NE(r->flag.find("--attention fp8"), std::string::npos);
  EXPECT_EQ(r->confidence, Confidence::kLow);
}

TEST(Explain, WhatTheFilesDoNotHoldIsNotRecommended) {
  const Explanation e = explain(fp16(), nvfp4());
  for (const char* id : {"batch", "graph", "sparsity", "precision", "tune"})
    EXPECT_EQ(recommended(e, id), nullptr) << id;
  EXPECT_FALSE(e.b_outside);
  EXPECT_EQ(e.changes.by, "kernel group");
  EXPECT_EQ(e.changes.all[0].name, "gemm fp16");
}

TEST(Explain, LatencyIsSaidApart) {
  Profile a = fp16(), b = nvfp4();
  a.latency = latency_of({10.4});
  b.latency = latency_of({7.3});
  b.batch = a.batch = 64;
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_NEAR(*e.latency_speedup, 1.425, 0.001);
  EXPECT_NEAR(*e.speedup, 1.382, 0.001);
  ASSERT_TRUE(e.b_outside);
  EXPECT_NEAR(e.b_outside->outside_ms, 1.8, 1e-9);
  const Recommendation* r = recommended(e, "batch");
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(r->basis, "latency per sample");
  EXPECT_NEAR(r->predicted, 10.4 / (7.3 - 0.9), 0.001);
  EXPECT_NE(r->flag.find("--batch 128"), std::string::npos);
  EXPECT_EQ(e.recommendations[0].id, "fuse") << "it still saves most";
  EXPECT_EQ(recommended(e, "graph"), nullptr) << "the profile does not say that gaps are the reason";
}

TEST(Explain, GapsAskForAGraphButNotInTesserasEngines) {
  Profile a = fp16(), b = nvfp4();
  a.latency = latency_of({10.4});
  b.latency = latency_of({7.3});
  b.gap_us = 1500;
  Explanation e = explain(a, b);
  const Recommendation* r = recommended(e, "graph");
  ASSERT_NE(r, nullptr);
  EXPECT_NEAR(r->predicted, 10.4 / 5.8, 0.001);
  EXPECT_NE(r->flag.find("--useCudaGraph"), std::string::npos);
  for (const Combination& c : e.combinations) {
    for (const size_t i : c.of) EXPECT_EQ(e.recommendations[i].basis, "kernel time");
  }
  b.source = "tessera";
  EXPECT_EQ(recommended(explain(a, b), "graph"), nullptr);
}

TEST(Explain, SwappedFilesAreASlowdownThatClaimsNoEstimate) {
  const Explanation e = explain(nvfp4(), fp16());
  expect_sound(e);
  EXPECT_NEAR(*e.speedup, 5500.0 / 7600, 0.001);
  EXPECT_NE(e.answer.find("B is slower"), std::string::npos) << e.answer;
  EXPECT_NE(e.answer.find("gemm"), std::string::npos) << e.answer;
  EXPECT_EQ(e.b_coverage.flops.of("fp16"), 1.0) << "one precision needs no estimate";
  EXPECT_EQ(e.a_coverage.flops.origin, Origin::kNotKnown);
  EXPECT_EQ(recommended(e, "fuse"), nullptr);
  EXPECT_EQ(recommended(e, "quantize"), nullptr);
  EXPECT_TRUE(e.fallbacks.empty());
}

TEST(Explain, SeveralPrecisionsInALeaveFlopsUnknown) {
  Profile a = fp16();
  a.kernels[0].precision = "fp8";
  const Explanation e = explain(a, nvfp4());
  expect_sound(e);
  EXPECT_EQ(e.b_coverage.flops.origin, Origin::kNotKnown);
  EXPECT_NE(e.b_coverage.flops.why.find("several precisions"), std::string::npos);
  EXPECT_EQ(rung_with(e, "reaches here", 'B'), nullptr);
  const Recommendation* r = recommended(e, "quantize");
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(r->confidence, Confidence::kLow);
  EXPECT_NEAR(r->predicted, 7600 / (5500 - 1449.6 * 0.75), 0.005) << "at the nominal ratio of B's own time";
  // The ceiling takes each precision of A at its own ratio.
  EXPECT_NEAR(speedup_of(e, "the rest as in A", 'A'), 7600 / (2259.6 / 2 + 4102.8 / 4 + 1237.6), 0.005);
}

TEST(Explain, MoreTimeInAsPrecisionThanAHasLeavesFlopsUnknown) {
  Profile b = nvfp4();
  b.kernels[0].us = 6400;
  const Explanation e = explain(fp16(), b);
  expect_sound(e);
  EXPECT_EQ(e.b_coverage.flops.origin, Origin::kNotKnown);
}

TEST(Explain, FlopsInTheFileAreUsed) {
  Profile b = nvfp4();
  b.kernels[0].flops = 4e11;
  b.kernels[1].flops = 6e11;
  const Explanation e = explain(fp16(), b);
  expect_sound(e);
  EXPECT_EQ(e.b_coverage.flops.origin, Origin::kFromFiles);
  EXPECT_NEAR(*e.b_coverage.flops.of("fp4"), 0.6, 1e-9);
  EXPECT_EQ(e.b_coverage.bytes.origin, Origin::kNotKnown);
  EXPECT_NEAR(recommended(e, "quantize")->predicted, 7600 / (1371.6 / 0.6 + 2678.8), 0.005);
  EXPECT_EQ(recommended(e, "quantize")->confidence, Confidence::kHigh);
  b.kernels[0].flops.reset();
  EXPECT_EQ(explain(fp16(), b).b_coverage.flops.origin, Origin::kEstimated) << "half of the flops are not enough";
}

TEST(Explain, LowPrecisionThatIsNoFasterIsNotRecommended) {
  Profile b = nvfp4();
  b.kernels[0].flops = 9e11;
  b.kernels[1].flops = 1e11;
  const Explanation e = explain(fp16(), b);
  expect_sound(e);
  EXPECT_EQ(recommended(e, "quantize"), nullptr);
  EXPECT_TRUE(noted(e, "quantizing more would not help"));
}

TEST(Explain, LayersAreComparedWhereBothHaveThem) {
  Profile a = profile({}), b = profile({});
  a.source = b.source = "tessera";
  for (int i = 0; i < 3; ++i) {
    KernelTime x = kernel("matmul/sm90_f16", KernelClass::kGemm, "fp16", 1, 100);
    x.layer = cat("blocks.", i, ".fc1");
    a.kernels.push_back(x);
    KernelTime y = kernel("matmul/sm90_fp8", KernelClass::kGemm, i == 2 ? "fp16" : "fp8", 1, i == 2 ? 99.0 : 50.0 + i);
    y.layer = x.layer;
    y.asked = i == 2 ? "fp16" : "fp8";
    b.kernels.push_back(y);
  }
  b.precision = "fp8";
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_EQ(e.changes.by, "layer");
  ASSERT_EQ(e.changes.all.size(), 3u);
  EXPECT_EQ(e.changes.all[0].name, "blocks.0.fc1");
  EXPECT_EQ(e.changes.all[0].b_precision, "fp8");
  EXPECT_TRUE(e.fallbacks.empty()) << "that layer was asked to be fp16";
  const Recommendation* r = recommended(e, "quantize");
  ASSERT_NE(r, nullptr);
  EXPECT_NE(r->what.find("blocks.*.fc1"), std::string::npos) << r->what;
  EXPECT_NE(r->flag.find("without --allow"), std::string::npos) << r->flag;
  b.kernels[2].asked.clear();
  ASSERT_EQ(explain(a, b).fallbacks.size(), 1u) << "now the profile's own precision counts";
  EXPECT_TRUE(explain(a, b, ExplainOptions{.asked = "fp16"}).fallbacks.empty());
}

TEST(Explain, AskedFp4OnAChipWithoutItIsStoredOnly) {
  Profile a = fp16(), b = fp16();
  a.machine = b.machine = "NVIDIA H200";
  b.precision = "nvfp4";
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_EQ(e.asked, "fp4");
  EXPECT_EQ(e.fallbacks.size(), 4u);
  EXPECT_EQ(recommended(e, "quantize"), nullptr) << "this chip does not multiply fp4";
  const Recommendation* r = recommended(e, "precision");
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(r->precision, "fp8");
  EXPECT_NE(r->flag.find("--precision fp8 --target sm90"), std::string::npos) << r->flag;
  EXPECT_EQ(rung_with(e, "fp4", 'B'), nullptr);
}

TEST(Explain, TheSameFileTwiceIsNoDifference) {
  for (const Profile& p : {fp16(), nvfp4()}) {
    const Explanation e = explain(p, p);
    expect_sound(e);
    EXPECT_EQ(*e.speedup, 1.0);
    EXPECT_NE(e.answer.find("no difference"), std::string::npos) << e.answer;
    EXPECT_TRUE(e.growth.grown.empty());
    for (const LayerChange& c : e.changes.all) EXPECT_EQ(c.a_ms, c.b_ms);
  }
}

TEST(Explain, OneProfileAloneHasClassesCoverageAndFallbacks) {
  const Explanation e = explain(nvfp4());
  expect_sound(e);
  EXPECT_FALSE(e.compared);
  EXPECT_FALSE(e.speedup);
  EXPECT_NEAR(*e.a_coverage.time.of("fp4"), 0.486, 0.001);
  EXPECT_EQ(e.a_coverage.flops.origin, Origin::kNotKnown);
  ASSERT_EQ(e.fallbacks.size(), 1u);
  EXPECT_EQ(e.changes.all.size(), 0u);
  EXPECT_EQ(recommended(e, "attention"), nullptr) << "its precision is not told, and nothing to compare it with";
  const auto json = nlohmann::json::parse(explanation_json(e));
  EXPECT_FALSE(json.contains("b"));
  EXPECT_FALSE(json["classes"][0].contains("b_ms"));
  EXPECT_EQ(rung_with(e, "the rest as in A", 'A'), nullptr);
}

TEST(Explain, NothingAtAllIsSaidOfNothing) {
  const Profile empty = profile({}), zeros = profile({kernel("gemm", KernelClass::kGemm, "fp16", 3, 0)});
  for (const Profile& x : {empty, zeros}) {
    expect_sound(explain(x));
    for (const Explanation& e : {explain(x, nvfp4()), explain(fp16(), x), explain(x, x)}) {
      expect_sound(e);
      EXPECT_FALSE(e.speedup);
      EXPECT_TRUE(e.ladder.empty());
      EXPECT_TRUE(e.recommendations.empty());
    }
  }
}

TEST(Explain, UnknownKernelsAreCountedAndNothingIsMadeOfThem) {
  const Profile a = profile({kernel("void f()", KernelClass::kUnknown, "", 1, 100)});
  const Profile b = profile({kernel("void g()", KernelClass::kUnknown, "", 1, 80)});
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_EQ(e.b.unclassified_share, 1.0);
  EXPECT_NEAR(*e.speedup, 1.25, 1e-9);
  EXPECT_EQ(e.ladder.size(), 1u) << "now";
  EXPECT_TRUE(e.recommendations.empty());
  EXPECT_EQ(e.asked, "");
  EXPECT_TRUE(noted(e, "no rule knows"));
}

TEST(Explain, DifferentBatchSizesAreComparedPerSampleOnly) {
  Profile a = fp16(), b = nvfp4();
  a.batch = 64, b.batch = 128;
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_TRUE(e.per_sample);
  EXPECT_NEAR(*e.speedup, 2 * 7600.0 / 5500, 0.001);
  EXPECT_TRUE(e.ladder.empty());
  EXPECT_TRUE(e.recommendations.empty());
}

TEST(Explain, MeasuredCeilingsReplaceNominalRatios) {
  Profile a = fp16(), b = nvfp4();
  b.ceilings = Ceilings{.machine = "a GPU",
                        .measured = true,
                        .bytes_per_s = 1e12,
                        .flops_per_s = {{"fp16", 2e14}, {"fp8", 3.8e14}, {"fp4", 6e14}}};
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_NEAR(speedup_of(e, "the rest as in A", 'A'), 7600 / (6362.4 / 3 + 1237.6), 0.005);
  EXPECT_FALSE(e.ladder[0].nominal);
  EXPECT_FALSE(noted(e, "nominal"));
  EXPECT_NE(e.answer.find("not 3x"), std::string::npos) << e.answer;
}

TEST(Explain, GemmsFarBelowTheBestOneAskForTuning) {
  Profile b = profile({});
  b.source = "tessera";
  b.ceilings = Ceilings{.machine = "a GPU", .measured = true, .bytes_per_s = 1e12, .flops_per_s = {{"fp8", 1e15}}};
  for (int i = 0; i < 2; ++i) {
    KernelTime k = kernel("matmul/sm90_fp8 128x256", KernelClass::kGemm, "fp8", 1, i == 0 ? 100 : 400);
    k.layer = i == 0 ? "fc1" : "fc2";
    k.flops = 5e10;
    k.bytes = 1e7;  // 10 us
    b.kernels.push_back(k);
  }
  const Explanation e = explain(b);
  expect_sound(e);
  const Recommendation* r = recommended(e, "tune");
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(r->flag, "--tune");
  EXPECT_NEAR(r->predicted, 500.0 / 200, 0.001);
  b.kernels[1].bytes = 3.9e8;  // 390 us: memory bounds it
  EXPECT_EQ(recommended(explain(b), "tune"), nullptr);
}

TEST(Explain, SparsityOnlyWhereTheCeilingsHaveIt) {
  Profile p = profile({kernel("matmul/sm90_fp8", KernelClass::kGemm, "fp8", 1, 100)});
  p.ceilings = Ceilings{.machine = "a GPU", .measured = true, .bytes_per_s = 1e12, .flops_per_s = {{"fp8", 1e15}}};
  EXPECT_EQ(recommended(explain(p), "sparsity"), nullptr);
  p.ceilings->flops_per_s.push_back({"fp8 2:4", 1.6e15});
  ASSERT_NE(recommended(explain(p), "sparsity"), nullptr);
  EXPECT_NEAR(recommended(explain(p), "sparsity")->predicted, 1.6, 0.001);
}

TEST(Explain, ACpuIsNotHeldToLowPrecisionArithmetic) {
  Profile p = profile({kernel("matmul/cpu 8x24", KernelClass::kGemm, "bf16", 1, 100)});
  p.source = "tessera";
  p.precision = "fp8";
  const Explanation e = explain(p);
  expect_sound(e);
  EXPECT_TRUE(e.fallbacks.empty());
  EXPECT_TRUE(noted(e, "a CPU stores codes"));
  EXPECT_EQ(e.ladder.size(), 1u) << "no rates of a GPU";
  EXPECT_EQ(recommended(e, "precision"), nullptr);
}

TEST(Explain, AppliedRecommendationsAreChecked) {
  Profile c = nvfp4();
  c.kernels[0].precision = "fp4";  // the remaining layers
  c.kernels[0].us = 500;
  c.kernels[2].us = 0;  // GELU is fused
  const Explanation e = explain(fp16(), nvfp4(), c);
  expect_sound(e);
  ASSERT_TRUE(e.applied);
  ASSERT_EQ(e.applied->checks.size(), 2u);
  const Check &fuse = e.applied->checks[0], &quantize = e.applied->checks[1];
  EXPECT_EQ(fuse.id, "fuse");
  EXPECT_NEAR(fuse.predicted_gain_ms, 1.447, 0.001);
  EXPECT_NEAR(fuse.measured_gain_ms, 0.533, 0.001);
  EXPECT_EQ(quantize.id, "quantize");
  EXPECT_NEAR(quantize.predicted_gain_ms, 1.045, 0.001);
  EXPECT_NEAR(quantize.measured_gain_ms, 0.9496, 0.001);
  EXPECT_NEAR(*e.applied->predicted, 2.526, 0.002) << "both together";
  EXPECT_NEAR(*e.applied->measured, 7600 / c.kernel_us(), 0.001);
  EXPECT_EQ(e.applied->not_seen.size(), 1u) << "attention";
}

TEST(Explain, NothingAppliedIsSaid) {
  const Explanation e = explain(fp16(), nvfp4(), nvfp4());
  ASSERT_TRUE(e.applied);
  EXPECT_TRUE(e.applied->checks.empty());
  EXPECT_FALSE(e.applied->predicted);
  EXPECT_NEAR(*e.applied->measured, 1.382, 0.001);
  EXPECT_EQ(e.applied->not_seen.size(), e.recommendations.size());
}

TEST(Explain, ALargerBatchIsCheckedPerSample) {
  Profile a = fp16(), b = nvfp4();
  a.latency = latency_of({10.4});
  b.latency = latency_of({7.3});
  a.batch = b.batch = 64;
  Profile c = b;
  c.batch = 128;
  for (KernelTime& k : c.kernels) k.us *= 2;
  c.latency = latency_of({13.0});
  const Explanation e = explain(a, b, c);
  ASSERT_EQ(e.applied->checks.size(), 1u);
  EXPECT_EQ(e.applied->checks[0].id, "batch");
  EXPECT_NEAR(e.applied->checks[0].predicted_gain_ms, 0.9, 1e-9);
  EXPECT_NEAR(e.applied->checks[0].measured_gain_ms, 7.3 - 6.5, 1e-9);
}

TEST(Explain, JsonHasTheKeysThatOthersRead) {
  const auto j = nlohmann::json::parse(explanation_json(explain(fp16(), nvfp4(), nvfp4())));
  for (const char* key :
       {"speedup", "classes", "coverage", "unclassified_share", "fallbacks", "ladder", "recommendations",
        "latency_speedup", "growth", "changes", "attention", "sizes", "combinations", "applied"})
    EXPECT_TRUE(j.contains(key)) << key;
  EXPECT_NEAR(j["speedup"].get<double>(), 1.382, 0.001);
  for (const char* key : {"name", "a_ms", "b_ms"}) EXPECT_TRUE(j["classes"][0].contains(key)) << key;
  for (const char* key : {"time", "flops", "bytes"}) EXPECT_TRUE(j["coverage"].contains(key)) << key;
  for (const char* key : {"kernel", "precision", "share"}) EXPECT_TRUE(j["fallbacks"][0].contains(key)) << key;
  for (const char* key : {"name", "speedup"}) EXPECT_TRUE(j["ladder"][0].contains(key)) << key;
  for (const char* key : {"what", "predicted", "flag"}) EXPECT_TRUE(j["recommendations"][0].contains(key)) << key;
}

}  // namespace
}  // namespace tessera
