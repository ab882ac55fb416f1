// SPDX-License-Identifier: Apache-2.0
// The published case with every number that follows from its kernel tables, then mutations of it: what is not known may
// not be claimed, and nothing divides by zero.
#include "explain/explain.h"
#include "explain/case.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <random>

#include "explain/test_profiles.h"
#include "io/json.h"

namespace tessera {
namespace {

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

// A kernel whose name tells no precision may be the fallback that is looked for.
TEST(Explain, WithoutAPrecisionNoFallbackIsRuledOut) {
  Profile b = nvfp4();
  b.kernels[0].precision = "";  // 1449.6 us of 2821.2
  Explanation e = explain(fp16(), b, ExplainOptions{.asked = "fp4"});
  expect_sound(e);
  EXPECT_TRUE(e.fallbacks.empty());
  EXPECT_NEAR(e.fallbacks_unknown_share.value_or(0), 1449.6 / 2821.2, 1e-9);
  EXPECT_EQ(fallback_words(e),
            "the precision of 51.4 % of GEMM time is not known; no other GEMM runs in a higher precision than it was "
            "asked to");
  EXPECT_NEAR(nlohmann::json::parse(explanation_json(e))["fallbacks_unknown_share"].get<double>(), 0.514, 0.001);
  b.kernels[1].precision = "fp16";
  e = explain(fp16(), b, ExplainOptions{.asked = "fp4"});
  EXPECT_EQ(e.fallbacks.size(), 1u);
  EXPECT_EQ(fallback_words(e), "the precision of 51.4 % of GEMM time is not known, so there may be more");
  b.kernels[1].precision = "";
  e = explain(fp16(), b, ExplainOptions{.asked = "fp4"});
  EXPECT_EQ(e.fallbacks_unknown_share, 1.0);
  EXPECT_EQ(fallback_words(e), "the precision of 100.0 % of GEMM time is not known");
  e = explain(fp16(), nvfp4());
  EXPECT_EQ(e.fallbacks_unknown_share, 0.0);
  EXPECT_EQ(fallback_words(e), "");
  Profile told = fp16();
  told.precision = "fp16";
  EXPECT_EQ(fallback_words(explain(fp16(), told)), "no GEMM runs in a higher precision than it was asked to");
  EXPECT_EQ(fallback_words(explain(fp16(), fp16())), "no GEMM runs in a higher precision than fp16") << "not told";
  EXPECT_EQ(fallback_words(explain(profile({}))), "there is no GEMM");
}

// All of it in fp16: the lowest precision is then what it fell back to, and nothing shows.
TEST(Explain, APrecisionThatNobodyToldIsNotHeldAgainstSilently) {
  EXPECT_TRUE(noted(explain(fp16(), fp16()), "pass --asked"));
  EXPECT_TRUE(noted(explain(fp16()), "pass --asked"));
  EXPECT_FALSE(noted(explain(fp16(), fp16(), ExplainOptions{.asked = "fp8"}), "pass --asked"));
  Profile told = fp16();
  told.precision = "fp8";
  EXPECT_FALSE(noted(explain(fp16(), told), "pass --asked"));
  EXPECT_EQ(explain(fp16(), told).fallbacks.size(), 4u);
}

TEST(Explain, APredictedTimeIsMarkedInTheAnswer) {
  Profile a = fp16(), b = nvfp4();
  b.predicted = true;
  EXPECT_TRUE(explain(a, b).answer.starts_with("1.38x on kernel time (B predicted) (kernels")) << explain(a, b).answer;
  a.predicted = true;
  EXPECT_TRUE(explain(a, b).answer.starts_with("1.38x on kernel time (both predicted)"));
  b.predicted = false;
  EXPECT_TRUE(explain(a, b).answer.starts_with("1.38x on kernel time (A predicted)"));
  EXPECT_TRUE(explain(a).answer.starts_with("7.60 ms of kernel time (predicted):")) << explain(a).answer;
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
  EXPECT_NE(r->what.find("blocks.2.fc1"), std::string::npos) << r->what;
  EXPECT_NE(r->flag.find("without --allow"), std::string::npos) << r->flag;
  b.kernels[2].asked.clear();
  ASSERT_EQ(explain(a, b).fallbacks.size(), 1u) << "now the profile's own precision counts";
  EXPECT_TRUE(explain(a, b, ExplainOptions{.asked = "fp16"}).fallbacks.empty());
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
  EXPECT_TRUE(json["classes"][0]["b_ms"].is_null());
  ASSERT_TRUE(json.contains("speedup"));
  EXPECT_TRUE(json["speedup"].is_null());
  EXPECT_EQ(json["no_speedup"], "one profile alone has nothing to be compared with");
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
  EXPECT_FALSE(e.attention) << "of two batches";
  EXPECT_TRUE(e.changes.all.empty() && e.growth.grown.empty());
}

TEST(Explain, GapsOfTracesWithoutALatencyAreSaid) {
  Profile a = fp16(), b = nvfp4();
  a.gap_us = 2800, b.gap_us = 20;
  EXPECT_TRUE(noted(explain(a, b),
                    "no kernel ran for 2.80 ms of A's 10.40 ms from its first kernel to its last, and "
                    "0.02 ms of B's 5.52 ms: 1.88x with these gaps"));
  a.gap_us = 30;
  EXPECT_FALSE(noted(explain(a, b), "no kernel ran for"));
}

TEST(Explain, ADifferenceWithinTheSpreadOfRunsSaysSo) {
  Profile a = fp16(), b = fp16();
  a.latency = Latency{.mean_ms = 8, .median_ms = 8, .p90_ms = 9.6, .runs = 10};
  b.latency = Latency{.mean_ms = 9, .median_ms = 9, .p90_ms = 9.1, .runs = 10};
  EXPECT_NE(explain(a, b).answer.find(", within what runs differ by here (p90 is 20.0 % above the median)"),
            std::string::npos)
      << explain(a, b).answer;
  a.latency->p90_ms = 8.1;
  EXPECT_EQ(explain(a, b).answer.find("within what runs"), std::string::npos);
}

// A memory that looks slow, since others used it while it was measured, is no cause of anything.
TEST(Explain, CeilingsInDoubtBoundNothing) {
  Profile b = nvfp4();
  for (KernelTime& k : b.kernels) k.bytes = 1e6 * k.us;
  b.ceilings = Ceilings{.machine = "a GPU", .measured = true, .bytes_per_s = 1e12, .flops_per_s = {{"fp4", 6e16}}};
  const auto memory_us = [&] {
    double us = 0;
    for (const PrecisionSum& sum : sums_of(b).precisions) us += sum.memory_us;
    return us;
  };
  EXPECT_GT(memory_us(), 0);
  b.ceilings->doubt = "other programs kept 1.9 cores busy";
  EXPECT_EQ(memory_us(), 0);
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

TEST(Explain, ACpuIsNotHeldToLowPrecisionArithmetic) {
  Profile p = profile({kernel("matmul/cpu 8x24", KernelClass::kGemm, "bf16", 1, 100)});
  p.source = "tessera";
  p.precision = "fp8";
  const Explanation e = explain(p);
  expect_sound(e);
  EXPECT_TRUE(e.fallbacks.empty());
  EXPECT_TRUE(noted(e, "a CPU stores codes"));
  EXPECT_FALSE(e.fallbacks_unknown_share);
  EXPECT_TRUE(fallback_words(e).starts_with("a CPU stores codes")) << "no all-clear";
  EXPECT_TRUE(nlohmann::json::parse(explanation_json(e))["fallbacks_unknown_share"].is_null());
  EXPECT_EQ(e.ladder.size(), 1u) << "no rates of a GPU";
  EXPECT_EQ(recommended(e, "precision"), nullptr);
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

TEST(Explain, ConvolutionsDoNotStandForTheFlopsOfGemms) {
  Profile a = fp16(), b = nvfp4();
  for (Profile* p : {&a, &b}) p->kernels.push_back(kernel("conv", KernelClass::kConvolution, "fp16", 1, 400));
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_NEAR(*e.b_coverage.flops.of("fp4"), 0.772, 0.001) << "as without them";
  EXPECT_NEAR(speedup_of(e, "all GEMMs at the rate that fp4 reaches here"), 8000 / (5900 - 1044.5), 0.005);
  EXPECT_NEAR(speedup_of(e, "the rest as in A", 'A'), 8000 / (6762.4 / 4 + 1237.6), 0.005);
  ASSERT_EQ(e.fallbacks.size(), 2u);
  EXPECT_EQ(e.fallbacks[0].kind, "GEMM");
  EXPECT_EQ(e.fallbacks[1].kind, "convolution");
}

TEST(Explain, NamesOfLayersBecomePatterns) {
  EXPECT_EQ(layer_pattern("blocks.11.attn.fc1"), "blocks.*.attn.fc1");
  EXPECT_EQ(layer_pattern("/layers.3/MatMul_7"), "/layers.*/MatMul_*");
  EXPECT_EQ(layer_pattern("7"), "*");
  EXPECT_EQ(layer_pattern("head"), "head");
  EXPECT_EQ(layer_pattern(""), "");
}

TEST(Explain, TimesHaveTheUnitOfTheirTable) {
  EXPECT_EQ(duration(6.3624, 7.6), "6.36 ms");
  EXPECT_EQ(duration(0.0312, 1.03), "0.031 ms");
  EXPECT_EQ(duration(0.0475, 0.1), "47.5 us");
  EXPECT_EQ(duration(1234.56, 2000), "1234.6 ms");
}

TEST(Explain, SmallRatiosKeepTheirDigits) {
  EXPECT_EQ(times(1.382), "1.38x");
  EXPECT_EQ(times(0.42), "0.42x");
  EXPECT_EQ(times(0.042), "0.042x");
  EXPECT_EQ(times(0.00416), "0.0042x");
  EXPECT_EQ(times(3.1e-7), "0.00000031x");
  EXPECT_EQ(times(0), "0.00x");
  EXPECT_EQ(ratio_text(4), "4");
  EXPECT_EQ(ratio_text(0.004), "0.0040");
  Profile slow = nvfp4();
  for (KernelTime& k : slow.kernels) k.us *= 400;
  const Explanation e = explain(fp16(), slow);
  expect_sound(e);
  EXPECT_TRUE(e.answer.starts_with("0.0035x on kernel time")) << e.answer;
}

TEST(Explain, NamesOfKernelsAreShortened) {
  EXPECT_EQ(short_kernel("_gemm_mha_v2"), "_gemm_mha_v2");
  EXPECT_EQ(short_kernel("void at::native::(anonymous namespace)::norm<float>(int, float*)"),
            "at::native::norm<float>");
  EXPECT_EQ(short_kernel("(x)"), "(x)");
  EXPECT_EQ(short_kernel(std::string(100, 'k')).size(), 64u);
}

// Any profile that the readers can make: whole fields missing, zero times, odd words.
Profile random_profile(std::mt19937& random) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const auto measure = [&] { return below(4) == 0 ? 0.0 : std::uniform_real_distribution<double>(0, 1000)(random); };
  const char* words[] = {"", "fp16", "bf16", "fp8", "nvfp4", "fp4", "int8", "fp32", "tf32", "auto", "w4a8", "fp8 2:4"};
  const auto word = [&] { return words[below(std::size(words))]; };
  Profile p;
  p.source = std::array{"tessera", "trtexec", "pytorch", "nsight systems", ""}[below(5)];
  p.machine = std::array{"", "NVIDIA H200", "another"}[below(3)];
  p.precision = word();
  p.batch = static_cast<int64_t>(below(3));
  p.capability = std::array{0, 70, 89, 120}[below(4)];
  for (size_t i = below(8); i > 0; --i) {
    KernelTime k =
        kernel(below(5) == 0 ? "matmul/cpu" : "k", static_cast<KernelClass>(below(11)), word(), 1, measure());
    k.layer = below(2) == 0 ? "" : cat("blocks.", below(3), ".fc");
    k.asked = below(2) == 0 ? "" : word();
    k.sparsity = below(4) == 0 ? "2:4" : "";
    if (below(2) == 0) k.flops = measure() * 1e9;
    if (below(2) == 0) k.bytes = measure() * 1e5;
    p.kernels.push_back(k);
  }
  if (below(2) == 0) p.latency = latency_of({measure() / 100});
  for (std::optional<double>* us : {&p.gap_us, &p.overlap_us, &p.enqueue_us, &p.host_to_device_us}) {
    if (below(2) == 0) *us = measure();
  }
  if (below(2) == 0) p.weight_bytes = static_cast<int64_t>(measure() * 1e6);
  if (below(2) == 0)
    p.ceilings = Ceilings{"m", true, measure() * 1e9, {{word(), measure() * 1e12}, {word(), measure() * 1e12}}};
  return p;
}

TEST(Explain, HoldsForAnyProfiles) {
  std::mt19937 random(20);
  for (int i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    const Profile a = random_profile(random), b = random_profile(random), c = random_profile(random);
    expect_sound(explain(a));
    expect_sound(explain(a, b));
    expect_sound(explain(a, b, c, ExplainOptions{.asked = i % 2 == 0 ? "" : "fp8"}));
  }
}

// As many names as a file may have, each once: nothing searches through all of them for each of them.
TEST(Explain, ManyNamesTakeNoLongTime) {
  Profile p = profile({});
  p.source = "tessera", p.precision = "fp4";
  for (int i = 0; i < 25'000; ++i) {
    KernelTime k = kernel(cat("a kernel with quite a long name that others share, number ", i).c_str(),
                          KernelClass::kGemm, i % 2 == 0 ? "fp16" : "fp8", 1, 1);
    k.layer = cat("layer that differs by no number alone ", std::string(1 + i % 7, 'a'), i, "x");
    k.graph = cat("graph ", i);
    p.kernels.push_back(std::move(k));
    p.graphs.push_back({.graph = cat("graph ", i), .plan = "p", .times = 1, .ms = {}, .kernel_us = 1});
  }
  const auto begin = std::chrono::steady_clock::now();
  const Explanation e = explain(p, p);
  EXPECT_EQ(e.fallbacks.size(), 25'000u);
  EXPECT_EQ(e.graphs.size(), 25'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << "a search per name";
}

}  // namespace
}  // namespace tessera
