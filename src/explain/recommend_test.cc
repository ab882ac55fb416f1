// SPDX-License-Identifier: Apache-2.0
// Recommendations: their order and arithmetic, the numbers that each needs, and the check of applied ones.
#include <gtest/gtest.h>

#include "explain/explain.h"
#include "explain/test_profiles.h"

namespace tessera {
namespace {

TEST(Recommend, FusingComesBeforeQuantizingTheRest) {
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

TEST(Recommend, AttentionInFp8IsAtMostTheRatioOfRates) {
  const Explanation e = explain(fp16(), nvfp4());
  const Recommendation* r = recommended(e, "attention");
  ASSERT_NE(r, nullptr);
  EXPECT_NEAR(r->predicted, 7600 / (5500 - 528.0 / 2), 0.001);
  EXPECT_NE(r->flag.find("--attention fp8"), std::string::npos);
  EXPECT_EQ(r->confidence, Confidence::kLow);
}

TEST(Recommend, WhatTheFilesDoNotHoldIsNotRecommended) {
  const Explanation e = explain(fp16(), nvfp4());
  for (const char* id : {"batch", "graph", "sparsity", "precision", "tune"})
    EXPECT_EQ(recommended(e, id), nullptr) << id;
  EXPECT_FALSE(e.b_outside);
  EXPECT_EQ(e.changes.by, "kernel group");
  EXPECT_EQ(e.changes.all[0].name, "gemm fp16");
}

TEST(Recommend, GapsAskForAGraphButNotInTesserasEngines) {
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

TEST(Recommend, LowPrecisionThatIsNoFasterIsNotRecommended) {
  Profile b = nvfp4();
  b.kernels[0].flops = 9e11;
  b.kernels[1].flops = 1e11;
  const Explanation e = explain(fp16(), b);
  expect_sound(e);
  EXPECT_EQ(recommended(e, "quantize"), nullptr);
  EXPECT_TRUE(noted(e, "quantizing more would not help"));
}

TEST(Recommend, AskedFp4OnAChipWithoutItIsStoredOnly) {
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

// No data of these chips; what they multiply follows from their compute capability.
TEST(Recommend, NominalRatiosAreForWhatTheGpuMultiplies) {
  struct Gpu {
    const char* name;
    int64_t capability;
    bool fp8, fp4;
  };
  for (const Gpu& gpu : {Gpu{"Tesla V100-SXM2-16GB", 70, false, false}, Gpu{"NVIDIA A100-SXM4-80GB", 80, false, false},
                         Gpu{"NVIDIA A10G", 86, false, false}, Gpu{"NVIDIA L4", 89, true, false},
                         Gpu{"NVIDIA GH200 480GB", 90, true, false}, Gpu{"NVIDIA B200", 100, true, true},
                         Gpu{"NVIDIA Thor", 110, true, true}, Gpu{"NVIDIA GB10", 121, true, true},
                         Gpu{"of which nothing is told", 0, true, true}}) {
    SCOPED_TRACE(gpu.name);
    Profile p = fp16();
    p.source = "pytorch", p.machine = gpu.name, p.capability = gpu.capability;
    p.kernels[4].precision = "fp16";  // attention
    const Explanation e = explain(p);
    expect_sound(e);
    EXPECT_EQ(rung_with(e, "at the chip's rate of fp8", 'A') != nullptr, gpu.fp8);
    EXPECT_EQ(rung_with(e, "at the chip's rate of fp4", 'A') != nullptr, gpu.fp4);
    EXPECT_EQ(recommended(e, "attention") != nullptr, gpu.fp8);
    Profile asked = p;
    asked.precision = "nvfp4";
    EXPECT_EQ(recommended(explain(p, asked), "quantize") != nullptr, gpu.fp4);
  }
}

TEST(Recommend, RatesOfAnotherMachineAreNotTaken) {
  Profile a = fp16(), b = fp16();
  a.machine = "NVIDIA H200", b.machine = "NVIDIA A100-SXM4-80GB", b.capability = 80;
  const Explanation e = explain(a, b);
  expect_sound(e);
  EXPECT_EQ(rung_with(e, "fp8", 'B'), nullptr) << "an H200's";
  EXPECT_EQ(recommended(e, "precision"), nullptr);
}

TEST(Recommend, GemmsFarBelowTheBestOneAskForTuning) {
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

TEST(Recommend, SparsityOnlyWhereTheCeilingsHaveIt) {
  Profile p = profile({kernel("matmul/sm90_fp8", KernelClass::kGemm, "fp8", 1, 100)});
  p.ceilings = Ceilings{.machine = "a GPU", .measured = true, .bytes_per_s = 1e12, .flops_per_s = {{"fp8", 1e15}}};
  EXPECT_EQ(recommended(explain(p), "sparsity"), nullptr);
  p.ceilings->flops_per_s.push_back({"fp8 2:4", 1.6e15});
  ASSERT_NE(recommended(explain(p), "sparsity"), nullptr);
  EXPECT_NEAR(recommended(explain(p), "sparsity")->predicted, 1.6, 0.001);
}

TEST(Recommend, SparsityIsOfDenseGemmsOnKnownChips) {
  Profile p = profile({kernel("matmul/sm90_fp8", KernelClass::kGemm, "fp8", 1, 100),
                       kernel("matmul/sm90_fp8_sparse", KernelClass::kGemm, "fp8", 1, 60)});
  p.machine = "NVIDIA H200";
  p.kernels[1].sparsity = "2:4";
  const Recommendation* r = nullptr;
  const Explanation by_data = explain(p);
  expect_sound(by_data);
  r = recommended(by_data, "sparsity");
  ASSERT_NE(r, nullptr);
  EXPECT_NEAR(r->predicted, 160.0 / (160 - 50), 0.001) << "what is sparse gains nothing";
  EXPECT_NE(r->why.find("by its data sheet"), std::string::npos) << r->why;
  p.kernels[0].sparsity = "2:4";
  EXPECT_EQ(recommended(explain(p), "sparsity"), nullptr);
}

// A sparse GEMM counts the flops of all weights: no dense one reaches that.
TEST(Recommend, SparseGemmsAreNoMeasureForDenseOnes) {
  Profile b = profile({});
  b.source = "tessera";
  b.ceilings = Ceilings{.machine = "a GPU", .measured = true, .bytes_per_s = 1e12, .flops_per_s = {{"fp8", 1e15}}};
  for (const bool sparse : {true, false}) {
    KernelTime k = kernel("matmul/sm90_fp8", KernelClass::kGemm, "fp8", 1, sparse ? 100 : 250);
    k.layer = sparse ? "fc1" : "fc2", k.flops = 1e11, k.bytes = 1e7;
    if (sparse) k.sparsity = "2:4";
    b.kernels.push_back(k);
  }
  EXPECT_EQ(recommended(explain(b), "tune"), nullptr);
  b.kernels[0].sparsity.clear();
  EXPECT_NE(recommended(explain(b), "tune"), nullptr) << "as dense it would be 2.5 times as fast";
}

// Where memory bounds GEMMs, a lower precision gains by its bytes, whatever the rates are.
Profile bound_by_memory(double bytes, const char* precision) {
  Profile p = profile({kernel("matmul/sm90", KernelClass::kGemm, precision, 1, 100),
                       kernel("norm/cuda", KernelClass::kNorm, precision, 1, 20)});
  p.source = "tessera", p.machine = "a GPU", p.batch = 1;
  p.ceilings = Ceilings{
      .machine = "a GPU", .measured = true, .bytes_per_s = 1e12, .flops_per_s = {{"fp16", 1e15}, {"fp8", 3e15}}};
  p.kernels[0].flops = 5e9;  // 5 us of the fp16 rate
  p.kernels[0].bytes = bytes;
  return p;
}

TEST(Recommend, BytesCountWhereMemoryBoundsGemms) {
  const Explanation e = explain(bound_by_memory(9e7, "fp16"));
  expect_sound(e);
  const Recommendation* r = recommended(e, "precision");
  ASSERT_NE(r, nullptr);
  EXPECT_NEAR(r->predicted, 120.0 / 70, 0.001) << "half of the bytes, not a third of the time: " << r->arithmetic;
  EXPECT_NE(r->what.find("fewer bytes"), std::string::npos) << r->what;
  EXPECT_NE(r->why.find("memory bounds 100.0 %"), std::string::npos) << r->why;
  EXPECT_EQ(r->why.find("multiplies"), std::string::npos) << r->why;
  EXPECT_NE(r->arithmetic.find("/ 2 (bytes)"), std::string::npos) << r->arithmetic;
  EXPECT_NEAR(speedup_of(e, "at the chip's rate of fp8", 'A'), 120.0 / 70, 0.001);
  Profile computes = bound_by_memory(9e6, "fp16");
  computes.kernels[0].flops = 8e10;  // 80 us of the rate
  const Recommendation* by_rate = nullptr;
  const Explanation other = explain(computes);
  by_rate = recommended(other, "precision");
  ASSERT_NE(by_rate, nullptr);
  EXPECT_NEAR(by_rate->predicted, 120.0 / (100.0 / 3 + 20), 0.001);
  EXPECT_NE(by_rate->why.find("multiplies fp8 3 times as fast"), std::string::npos) << by_rate->why;
}

// B is fp8 but for one GEMM that memory bounds: the rate that fp8 reaches elsewhere says nothing about it.
TEST(Recommend, TheRemainingLayersGainByTheirBytesWhereMemoryBoundsThem) {
  Profile a = bound_by_memory(9e7, "fp16"), b = a;
  for (Profile* p : {&a, &b}) {
    p->kernels.push_back(kernel("matmul/sm90 128x256", KernelClass::kGemm, "fp16", 1, 100));
    p->kernels.back().flops = 8e10, p->kernels.back().bytes = 1e6;
  }
  b.kernels.back().precision = "fp8", b.kernels.back().us = 35;
  const Explanation e = explain(a, b);
  expect_sound(e);
  const Recommendation* r = recommended(e, "quantize");
  ASSERT_NE(r, nullptr);
  EXPECT_NEAR(r->gain_ms, 0.050, 1e-6) << r->arithmetic;
  EXPECT_NE(r->why.find("memory bounds most of it"), std::string::npos) << r->why;
}

TEST(Recommend, SparsityIsNoRateWhereMemoryBounds) {
  Profile p = bound_by_memory(9e7, "fp8");
  p.ceilings->flops_per_s.push_back({"fp8 2:4", 5e15});
  EXPECT_EQ(recommended(explain(p), "sparsity"), nullptr);
}

TEST(Recommend, AppliedRecommendationsAreChecked) {
  Profile c = nvfp4();
  c.kernels[0].precision = "fp4";  // the remaining layers
  c.kernels[0].us = 500;
  c.kernels[2].us = 0;  // GELU is fused
  const Explanation e = explain(fp16(), nvfp4(), c);
  expect_sound(e);
  ASSERT_TRUE(e.applied);
  ASSERT_EQ(e.applied->checks.size(), 2u);
  const AppliedCheck &fuse = e.applied->checks[0], &quantize = e.applied->checks[1];
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

TEST(Recommend, NothingAppliedIsSaid) {
  const Explanation e = explain(fp16(), nvfp4(), nvfp4());
  ASSERT_TRUE(e.applied);
  EXPECT_TRUE(e.applied->checks.empty());
  EXPECT_FALSE(e.applied->predicted);
  EXPECT_NEAR(*e.applied->measured, 1.382, 0.001);
  EXPECT_EQ(e.applied->not_seen.size(), e.recommendations.size());
}

TEST(Recommend, ALargerBatchIsCheckedPerSample) {
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

TEST(Recommend, WithoutGrowthEpiloguesTakeInWhatTheyCan) {
  const Explanation e = explain(nvfp4());
  const Recommendation* r = recommended(e, "fuse");
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(r->what, "fuse elementwise work, quantization and conversions into the kernels around them");
  EXPECT_NEAR(r->predicted, 5500 / (5500 - 532.8 - 160.8), 0.001);
  EXPECT_EQ(r->confidence, Confidence::kLow);
}

TEST(Recommend, GrowthOfNormsIsAWeakReason) {
  Profile b = nvfp4();
  b.kernels[4].us += 5000;
  const Explanation e = explain(fp16(), b);
  ASSERT_NE(recommended(e, "fuse"), nullptr);
  EXPECT_EQ(recommended(e, "fuse")->confidence, Confidence::kLow) << recommended(e, "fuse")->because;
  EXPECT_NE(recommended(e, "fuse")->what.find("norms"), std::string::npos);
}

TEST(Recommend, TesserasLineSaysWhereItHasNoGpuKernels) {
  const Explanation e = explain(fp16(), nvfp4());
  EXPECT_NE(recommended(e, "quantize")->flag.find("no GPU kernels for fp4"), std::string::npos);
  EXPECT_EQ(recommended(e, "attention")->flag.find("no GPU kernels"), std::string::npos);
}

TEST(Recommend, ConvolutionsAreTheirOwnCase) {
  Profile a = fp16(), b = nvfp4();
  for (Profile* p : {&a, &b}) p->kernels.push_back(kernel("conv", KernelClass::kConvolution, "fp16", 1, 400));
  const Explanation e = explain(a, b);
  const Recommendation *convolution = recommended(e, "convolution"), *quantize = recommended(e, "quantize");
  ASSERT_NE(convolution, nullptr);
  ASSERT_NE(quantize, nullptr);
  EXPECT_NEAR(convolution->predicted, 8000 / (5900 - 300.0), 0.001);
  EXPECT_NE(quantize->what.find("sm80"), std::string::npos);
  EXPECT_EQ(quantize->what.find("conv"), std::string::npos);
}

}  // namespace
}  // namespace tessera
