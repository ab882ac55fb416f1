// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "traces/test_files.h"

namespace tessera {
namespace {

class Trtexec : public ScratchFiles {};

double total(const Profile& p, double (*of)(const KernelTime&)) {
  double sum = 0;
  for (const KernelTime& k : p.kernels) sum += of(k);
  return sum;
}

// The tables of the published analysis, as files: what explain is measured against.
TEST_F(Trtexec, SeedTables) {
  const auto a = read(fixture("seed_fp16.json")), b = read(fixture("seed_nvfp4.json"));
  ASSERT_TRUE(a.ok()) << a.status().message();
  ASSERT_TRUE(b.ok()) << b.status().message();
  EXPECT_EQ(a->source, "trtexec");
  EXPECT_EQ(a->runs, 100);
  EXPECT_NEAR(a->kernel_us(), 7600, 1e-6);
  EXPECT_NEAR(b->kernel_us(), 5500, 1e-6);
  EXPECT_NEAR(us_of(*a, KernelClass::kGemm, "fp16"), 6362.4, 1e-6);
  EXPECT_NEAR(us_of(*a, KernelClass::kAttention), 534, 1e-6);
  EXPECT_NEAR(us_of(*a, KernelClass::kNorm), 369.6, 1e-6);
  EXPECT_NEAR(us_of(*a, KernelClass::kOther), 334, 1e-6);
  EXPECT_NEAR(us_of(*b, KernelClass::kGemm, "fp16"), 1449.6, 1e-6);
  EXPECT_NEAR(us_of(*b, KernelClass::kGemm, "fp4"), 1371.6, 1e-6);
  EXPECT_NEAR(us_of(*b, KernelClass::kElementwise), 532.8, 1e-6);
  EXPECT_NEAR(us_of(*b, KernelClass::kAttention), 528, 1e-6);
  EXPECT_NEAR(us_of(*b, KernelClass::kNorm), 378.4, 1e-6);
  EXPECT_NEAR(us_of(*b, KernelClass::kConversion), 160.8, 1e-6);
  EXPECT_NEAR(us_of(*b, KernelClass::kOther), 1078.8, 1e-6);
  EXPECT_EQ(us_of(*a, KernelClass::kUnknown) + us_of(*b, KernelClass::kUnknown), 0);
  EXPECT_EQ(find_kernel(*b, "cutlass3x")->calls, 36);
  EXPECT_TRUE(a->notes.empty() && b->notes.empty());
}

TEST_F(Trtexec, ThreeFilesInAnyOrderAreOneProfile) {
  const std::string files[] = {fixture("fp8_profile.json"), fixture("fp8_layers.json"), fixture("fp8_times.json")};
  std::string first;
  for (int main = 0; main < 3; ++main) {
    for (int turn = 1; turn < 3; ++turn) {
      auto p = read(files[main], {.beside = {files[(main + turn) % 3], files[(main + 3 - turn) % 3]}});
      ASSERT_TRUE(p.ok()) << p.status().message();
      EXPECT_EQ(p->path, files[main]);
      p->path = "";
      if (first.empty()) first = profile_json(*p);
      EXPECT_EQ(profile_json(*p), first);
    }
  }
}

TEST_F(Trtexec, TheFallbackIsNamed) {
  const auto p = read(fixture("fp8_profile.json"), {.beside = {fixture("fp8_layers.json"), fixture("fp8_times.json")}});
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->kernels.size(), 28u);
  EXPECT_NEAR(p->kernel_us(), 1027, 1e-6);
  const KernelTime* fallback = nullptr;
  for (const KernelTime& k : p->kernels) {
    if (k.kernel_class != KernelClass::kGemm) continue;
    if (k.precision == "fp8") continue;
    EXPECT_EQ(fallback, nullptr) << k.layer;
    fallback = &k;
  }
  ASSERT_NE(fallback, nullptr);
  EXPECT_EQ(fallback->precision, "fp16");
  EXPECT_EQ(fallback->layer, "/blocks.2/attn/proj/MatMul_myl0_17");
  EXPECT_EQ(fallback->name.substr(0, 30), "sm80_xmma_gemm_f16f16_f16f32_f");
  EXPECT_NEAR(fallback->us, 31, 1e-9);
  // 4 blocks of 24 D^2 multiply-adds for each of 64 x 197 tokens.
  EXPECT_EQ(total(*p, [](const KernelTime& k) { return k.flops.value_or(0); }), 2.0 * 64 * 197 * 4 * 12 * 768 * 768);
  EXPECT_EQ(fallback->flops, 2.0 * 64 * 197 * 768 * 768);
  EXPECT_EQ(fallback->bytes, 2.0 * (2 * 64 * 197 * 768 + 768 * 768));
  EXPECT_EQ(find_kernel(*p, "e4m3")->bytes, 64.0 * 197 * 768 + 768 * 2304 + 2.0 * 64 * 197 * 2304);
  EXPECT_EQ(find_kernel(*p, "_gemm_mha")->precision, "fp16");  // from its inputs
  EXPECT_FALSE(find_kernel(*p, "_gemm_mha")->flops.has_value());
  ASSERT_TRUE(p->latency.has_value());
  EXPECT_EQ(p->latency->runs, 20);
  EXPECT_NEAR(p->latency->mean_ms, 0.52 + 1.22, 1e-9);
  EXPECT_NEAR(p->host_to_device_us.value_or(0), 500, 1e-6);
  EXPECT_NEAR(p->device_to_host_us.value_or(0), 20, 1e-6);
  EXPECT_NEAR(p->enqueue_us.value_or(0), 250, 1e-6);
}

TEST_F(Trtexec, WithoutLayerInformationNamesDecide) {
  const auto p = read(fixture("fp8_profile.json"));
  ASSERT_TRUE(p.ok());
  EXPECT_NEAR(us_of(*p, KernelClass::kGemm), 15 * 43.2 + 31, 1e-6);
  EXPECT_EQ(us_of(*p, KernelClass::kGemm, "fp8"), 0) << "a layer's name does not tell it";
  EXPECT_FALSE(p->latency.has_value());
}

TEST_F(Trtexec, NamesOnlyAndMissingLayersAreNoted) {
  const std::string profile = R"([{"count": 2}, {"name": "a", "timeMs": 4}, {"name": "/x/MatMul", "timeMs": 6}])";
  const auto names =
      read(write("p", profile), {.beside = {write("l", R"({"Layers": ["a", "/x/MatMul"], "Bindings": []})")}});
  ASSERT_TRUE(names.ok()) << names.status().message();
  ASSERT_EQ(names->notes.size(), 1u);
  EXPECT_NE(names->notes[0].find("--profilingVerbosity=detailed"), std::string::npos);
  EXPECT_DOUBLE_EQ(names->kernel_us(), 5000);
  const auto part =
      read(write("p", profile), {.beside = {write("l", R"({"Layers": [{"Name": "a", "LayerType": "gemm"}]})")}});
  ASSERT_TRUE(part.ok());
  ASSERT_EQ(part->notes.size(), 1u);
  EXPECT_NE(part->notes[0].find("1 of 2 layers"), std::string::npos);
  EXPECT_DOUBLE_EQ(us_of(*part, KernelClass::kGemm), 5000) << "one by its type, one by its name";
}

TEST_F(Trtexec, PrecisionAndFlopsFromTheInputs) {
  const auto layer = [&](const std::string& inputs, const std::string& outputs) {
    const std::string l = R"({"Layers": [{"Name": "a", "LayerType": "gemm", "Inputs": [)" + inputs +
                          R"(], "Outputs": [)" + outputs + R"(], "TacticName": "mystery"}]})";
    auto p = read(write("p", R"([{"name": "a", "timeMs": 4}])"), {.beside = {write("l", l)}});
    EXPECT_TRUE(p.ok()) << p.status().message();
    return p->kernels.at(0);
  };
  const auto tensor = [](const std::string& dims, const std::string& type) {
    return R"({"Name": "t", "Dimensions": [)" + dims + R"(], "Format/Datatype": ")" + type + "\"}";
  };
  // A product of two types runs in the wider; a scale is no operand.
  KernelTime k = layer(tensor("1", "Float") + "," + tensor("8,32", "Row major linear FP16 format") + "," +
                           tensor("32,16", "FP4") + "," + tensor("16", "Float"),
                       tensor("8,16", "Half"));
  EXPECT_EQ(k.precision, "fp16");
  EXPECT_EQ(k.kernel_class, KernelClass::kGemm);
  EXPECT_EQ(k.name, "mystery");
  EXPECT_EQ(k.flops, 2.0 * 8 * 16 * 32);
  EXPECT_EQ(k.bytes, 4 + 2.0 * 8 * 32 + 32 * 16 / 2 + 4 * 16 + 2.0 * 8 * 16);
  k = layer(tensor("8,32", "Thirty-two wide channel vectorized row major Int8 format"), tensor("8,16", "Int8"));
  EXPECT_EQ(k.precision, "int8");
  EXPECT_FALSE(k.flops.has_value()) << "one operand leaves K open";
  // Stacks of matrices; transposed operands; one stack against a single matrix.
  EXPECT_EQ(layer(tensor("6,8,32", "Half") + "," + tensor("6,16,32", "Half"), tensor("6,8,16", "Half")).flops,
            2.0 * 6 * 8 * 16 * 32);
  EXPECT_EQ(layer(tensor("6,8,32", "Half") + "," + tensor("1,32,16", "Half"), tensor("6,8,16", "Half")).flops,
            2.0 * 6 * 8 * 16 * 32);
  EXPECT_FALSE(layer(tensor("6,8,32", "Half") + "," + tensor("3,32,16", "Half"), tensor("6,8,16", "Half")).flops);
  EXPECT_FALSE(layer(tensor("8,32", "Half") + "," + tensor("8,32", "Half"), tensor("8,32", "Half")).flops);
  // Dynamic dimensions: nothing is made up.
  k = layer(tensor("-1,32", "Half") + "," + tensor("32,16", "Half"), tensor("-1,16", "Half"));
  EXPECT_EQ(k.precision, "fp16");
  EXPECT_FALSE(k.flops || k.bytes);
  EXPECT_EQ(layer(tensor("8,32", "BFloat16"), tensor("8,16", "BFloat16")).precision, "bf16");
  EXPECT_EQ(layer(tensor("8,32", "E4M3"), tensor("8,16", "BFloat16")).precision, "fp8");
  EXPECT_EQ(layer(tensor("8,32", "Int32") + "," + tensor("8,32", "Float"), tensor("8,16", "Float")).precision, "fp32");
}

TEST_F(Trtexec, OlderTimesAreRead) {
  const auto p = read(write("p", R"([{"count": 1}, {"name": "a", "averageMs": 2}])"),
                      {.beside = {write("t", R"([{"startInMs": 0, "inMs": 1, "computeMs": 2, "outMs": 3,
                                                  "latencyMs": 6, "endToEndMs": 7, "enqueueMs": 0.5}])")}});
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_DOUBLE_EQ(p->kernel_us(), 2000);
  EXPECT_DOUBLE_EQ(p->latency->median_ms, 6);
  EXPECT_DOUBLE_EQ(p->host_to_device_us.value(), 1000);
  EXPECT_DOUBLE_EQ(p->device_to_host_us.value(), 3000);
  EXPECT_DOUBLE_EQ(p->enqueue_us.value(), 500);
}

TEST_F(Trtexec, BadFilesAreRefusedInASentence) {
  const auto has = [](const std::string& said, const char* what) {
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  has(refusal(content(fixture("fp8_times.json"))), "give the file of --exportProfile too");
  has(refusal(content(fixture("fp8_layers.json"))), "give the file of --exportProfile too");
  has(refusal(content(fixture("fp8_layers.json")), {.beside = {fixture("fp8_times.json")}}), "--exportProfile too");
  has(refusal(content(fixture("fp8_profile.json")), {.beside = {fixture("seed_fp16.json")}}),
      "second file of --exportProfile");
  has(refusal(content(fixture("fp8_profile.json")), {.beside = {fixture("fp8_torch.json")}}), "none of trtexec's");
  has(refusal(content(fixture("seed_fp16.json")), {.beside = {fixture("fp8_layers.json")}}),
      "describes another engine");
  has(refusal(R"([{"count": 3}])"), "holds no layer");
  has(refusal(R"([{"count": 0}, {"name": "a", "timeMs": 1}])"), "\"count\" is not a whole number of runs");
  has(refusal(R"([{"count": 3}, {"name": "a", "timeMs": -1}])"), "entry 1: \"timeMs\" is not a time from 0 ms on");
  has(refusal(R"([{"count": 3}, {"name": "a", "timeMs": 1e300}])"), "not a time from 0 ms on");
  has(refusal(R"([{"count": 3}, {"name": "a", "timeMs": "1"}])"), "not a time from 0 ms on");
  has(refusal(R"([{"count": 3}, {"name": "a"}])"), "has no \"averageMs\"");
  has(refusal(R"([{"count": 3}, {"name": 7, "timeMs": 1}])"), "no \"name\" of a layer");
  has(refusal(R"([{"count": 3}, 7])"), "entry 1 is not an object");
  has(refusal(R"([{"count": 3}, {"name": "a", "timeMs": 0}])"), "take no time at all");
  has(refusal(R"([{"count": 3}, {"name": "a", "timeMs": nan}])"), "is not JSON at byte");
  const std::string profile = content(fixture("fp8_profile.json"));
  has(refusal(profile.substr(0, profile.size() / 2)), "is not JSON at byte");
  has(refusal(profile, {.beside = {write("l", R"({"Layers": 7})")}}), "\"Layers\" is not a list");
  has(refusal(profile, {.beside = {write("l", R"({"Layers": [7]})")}}), "layer 0 is neither");
  has(refusal(profile, {.beside = {write("t", R"([{"latencyMs": -1}])")}}), "\"latencyMs\" is not a time");
  EXPECT_FALSE(read(fixture("fp8_profile.json"), {.beside = {path("missing")}}).ok());
  EXPECT_FALSE(read(fixture("fp8_profile.json"), {.runs = -1}).ok());
}

}  // namespace
}  // namespace tessera
