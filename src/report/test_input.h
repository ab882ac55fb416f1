// SPDX-License-Identifier: Apache-2.0
// A report's input for tests: two engines of a small ViT with every kind of data that a report can hold. All of it is
// made up and none of it computed, so that the golden file changes only with the report.
#pragma once

#include <string>

#include "report/report.h"

namespace tessera {

inline KernelTime test_kernel(std::string name, std::string layer, KernelClass kernel_class, std::string precision,
                              double us, double flops, double bytes) {
  KernelTime k;
  k.name = std::move(name);
  k.layer = std::move(layer);
  k.kernel_class = kernel_class;
  k.precision = std::move(precision);
  k.us = us;
  if (flops > 0) k.flops = flops;
  if (bytes > 0) k.bytes = bytes;
  return k;
}

inline Profile test_profile(const std::string& precision, int blocks, double factor) {
  Profile p;
  p.source = "tessera";
  p.path = "vit_" + precision + ".tess";
  p.model = "vit";
  p.precision = precision;
  p.machine = "NVIDIA H200";
  p.plan = "batch64";
  p.batch = 64;
  p.runs = 20;
  for (int i = 0; i < blocks; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    p.kernels.push_back(test_kernel("norm/cuda_rows", block + "norm1", KernelClass::kNorm, "fp16", 12, 0, 4e7));
    p.kernels.push_back(test_kernel("matmul/sm90_" + precision + " 128x256", block + "attn.qkv", KernelClass::kGemm,
                                    precision, 70 * factor, 4.5e10, 8e7));
    p.kernels.back().asked = precision;
    p.kernels.back().arithmetic = "wgmma, f32 sums";
    p.kernels.push_back(
        test_kernel("attention/sm90_short", block + "attn", KernelClass::kAttention, "fp16", 30, 7.6e9, 7.7e7));
  }
  p.kernels.push_back(test_kernel("matmul/sm90_f16", "head", KernelClass::kGemm, "fp16", 8, 1e8, 1.6e6));
  p.latency = Latency{.mean_ms = 0.31 * factor,
                      .median_ms = 0.30 * factor,
                      .p90_ms = 0.32 * factor,
                      .p95_ms = 0.33 * factor,
                      .p99_ms = 0.40 * factor,
                      .least_ms = 0.29 * factor,
                      .most_ms = 0.9 * factor,
                      .runs = 200};
  p.enqueue_us = 9;
  p.gap_us = 11;
  p.profiled_ms = 0.36 * factor;
  p.engine_bytes = precision == "fp8" ? 91'000'000 : 175'000'000;
  p.ceilings = Ceilings{"NVIDIA H200", true, 4.1e12, {{"fp16", 8.1e14}, {"fp8", 1.55e15}}};
  p.notes = {"times are of CUPTI inside the CUDA graph"};
  return p;
}

inline Explanation test_explanation() {
  Explanation e;
  e.compared = true;
  e.a.name = "fp16", e.b.name = "fp8";
  e.a.kernel_ms = 0.232, e.b.kernel_ms = 0.170;
  e.answer = "1.36x and not 2x: attention did not change.";
  e.speedup = 1.36, e.latency_speedup = 1.43;
  e.attention = AttentionChange{60, 60, "fp16", "fp16", true};
  e.growth.a_ms = 0.084, e.growth.b_ms = 0.090;
  e.a_coverage.time = {Origin::kFromFiles, "", {{"fp16", 1}}};
  e.b_coverage.time = {Origin::kFromFiles, "", {{"fp16", 0.1}, {"fp8", 0.9}}};
  e.b_coverage.flops = {Origin::kEstimated, "flops are not in the files", {{"fp16", 0.05}, {"fp8", 0.95}}};
  e.asked = "fp8", e.asked_how = "the profile";
  e.fallbacks.push_back({.kernel = "matmul/sm90_f16",
                         .layer = "head",
                         .asked = "fp8",
                         .precision = "fp16",
                         .calls = 1,
                         .ms = 0.008,
                         .share = 0.047});
  e.ladder = {{"all GEMMs at the chip's rate (2x), the rest as in A", 'A', 0.158, 1.47, "0.15 ms / 2 + 0.08 ms", true},
              {"now", 'B', 0.170, 1.36, "0.17 ms", false},
              {"attention too", 'B', 0.140, 1.66, "0.17 ms - 0.03 ms = 0.14 ms", false}};
  Recommendation r;
  r.id = "attention", r.what = "run attention in fp8", r.why = "attention takes 35.3 % of the time";
  r.basis = "kernel time", r.predicted = 1.66, r.gain_ms = 0.03;
  r.confidence = Confidence::kMedium, r.because = "measured on this chip", r.flag = "--attention fp8";
  e.recommendations = {r, r};
  e.recommendations[1].flag = "put the nodes elsewhere";
  e.combinations.push_back({.of = {0, 1}, .predicted = 1.9, .arithmetic = "0.17 ms - 0.05 ms = 0.12 ms"});
  e.changes.by = "layer";
  e.changes.all.push_back({.name = "blocks.0.attn.qkv",
                           .a_ms = 0.07,
                           .b_ms = 0.04,
                           .in_a = true,
                           .in_b = true,
                           .a_precision = "fp16",
                           .b_precision = "fp8"});
  e.notes = {"rates are of the chip's data"};
  return e;
}

inline ReportInput test_input() {
  ReportInput in;
  in.title = "ViT: fp16 beside fp8";
  in.date = "2026-11-18";
  in.program = "tessera 0.1.0";
  const auto accuracy = [](double cosine, double worst, double l2) {
    AccuracyFacts a;
    a.outputs.push_back({.output = "logits",
                         .inputs = "golden inputs",
                         .samples = 2,
                         .cosine_mean = cosine,
                         .cosine_worst = worst,
                         .relative_l2 = l2});
    a.arithmetic = "every output is within its bound, on NVIDIA H200";
    a.quantization = "worst cosine with the model is above the gate";
    return a;
  };
  for (const std::string precision : {"fp16", "fp8"}) {
    ReportEntry& e = in.entries.emplace_back();
    e.name = precision;
    e.profile = test_profile(precision, 2, precision == "fp8" ? 0.7 : 1);
    e.accuracy = precision == "fp8" ? accuracy(0.9992, 0.9988, 0.03) : accuracy(0.9999999, 0.9999998, 0.0004);
    const std::string stored = precision == "fp8" ? "e4m3" : "f16";
    e.layers = {{"blocks.0.attn.qkv", "matmul", precision, stored, precision},
                {"blocks.1.attn.qkv", "matmul", precision, stored, "fp16"},
                {"head", "matmul", "fp16", "f16", "fp16"}};
    e.configuration = {{"target", "sm90"}};
  }
  in.explained = {test_explanation()};
  in.compared.push_back({.name = "fp16",
                         .precision = "fp16",
                         .attention = "fp16",
                         .sparsity = "",
                         .batch = 64,
                         .latency_ms = 0.3,
                         .cosine = 0.9999999,
                         .per_second = 213333,
                         .bytes = 175'000'000,
                         .on_front = true});
  in.compared.push_back({.name = "fp8",
                         .precision = "fp8",
                         .attention = "fp16",
                         .sparsity = "",
                         .batch = 64,
                         .latency_ms = 0.21,
                         .cosine = 0.9992,
                         .per_second = 304761,
                         .bytes = 91'000'000,
                         .on_front = true});
  in.compared.push_back({.name = "nvfp4",
                         .precision = "nvfp4",
                         .attention = "",
                         .sparsity = "",
                         .batch = 0,
                         .latency_ms = {},
                         .refused = "no kernel of sm90 reads e2m1"});
  in.versions.push_back({.before = "fp8 old",
                         .after = "fp8",
                         .ms_before = 0.25,
                         .ms_after = 0.21,
                         .steps = {{"blocks.0.attn.qkv", "matmul/sm90_fp8 128x128", "matmul/sm90_fp8 128x256", 60, 49},
                                   {"blocks.0.cast", "copy/cuda", "", 3, {}}}});
  in.commands = {"tessera report vit_fp16.tess vit_fp8.tess -o report.html"};
  return in;
}

}  // namespace tessera
