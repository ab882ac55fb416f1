// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/gzip.h"
#include "io/test_gzip.h"
#include "traces/test_files.h"

namespace tessera {
namespace {

class TorchTrace : public ScratchFiles {
 protected:
  static std::string event(const std::string& category, const std::string& name, double ts, double dur,
                           const std::string& args = "\"device\": 0") {
    return cat(R"({"ph": "X", "cat": ")", category, R"(", "name": ")", name, R"(", "pid": 0, "tid": 7, "ts": )", ts,
               R"(, "dur": )", dur, R"(, "args": {)", args, "}}");
  }
  static std::string trace(const std::string& events) {
    return R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU A"},
      {"computeMajor": 8, "id": 1, "name": "GPU B", "computeMinor": 9}],
      "traceEvents": [)" +
           events + R"(], "traceName": "t"})";
  }
};

TEST_F(TorchTrace, StepsAreRunsAndCopiesOfTheHostStandApart) {
  const auto p = read(fixture("fp8_torch.json"));
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->source, "pytorch");
  EXPECT_EQ(p->machine, "NVIDIA H200");
  EXPECT_EQ(p->runs, 2);
  EXPECT_TRUE(p->notes.empty()) << p->notes.front();
  EXPECT_NEAR(p->kernel_us(), 1027 + 1, 1e-6);
  EXPECT_NEAR(p->host_to_device_us.value_or(0), 50, 1e-9);
  EXPECT_NEAR(p->device_to_host_us.value_or(0), 2, 1e-9);
  EXPECT_NEAR(p->gap_us.value_or(-1), 27 * 0.5, 1e-2);  // times of a trace have three decimals
  EXPECT_NEAR(p->overlap_us.value_or(-1), 0, 1e-2);
  const KernelTime* fallback = find_kernel(*p, "f16f16");
  ASSERT_NE(fallback, nullptr);
  EXPECT_EQ(fallback->precision, "fp16");
  EXPECT_EQ(fallback->calls, 1);
  EXPECT_NEAR(us_of(*p, KernelClass::kGemm, "fp8"), 15 * 43.2, 1e-6);
  EXPECT_EQ(find_kernel(*p, "e4m3")->calls, 15);
  EXPECT_TRUE(find_kernel(*p, "e4m3")->begin_us.empty()) << "of two runs, none is the run";
}

TEST_F(TorchTrace, TheUserKnowsTheRunsBetter) {
  const auto p = read(fixture("fp8_torch.json"), {.runs = 1});
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->runs, 1);
  EXPECT_NEAR(p->kernel_us(), 2 * 1028, 1e-6);
  const KernelTime& k = *find_kernel(*p, "e4m3");
  ASSERT_EQ(k.begin_us.size(), 30u);
  EXPECT_NEAR(k.begin_us[0], 1 + 12.5 + 0.5, 1e-2);
  EXPECT_NEAR(k.end_us[0] - k.begin_us[0], 42, 1e-6);
}

TEST_F(TorchTrace, GapsAndOverlapOfOneRun) {
  // |aaaa|  |bbbb|      |eeee|
  //   |cc|    |dd d|              c inside a; d from inside b past it
  const std::string events = event("kernel", "a", 100, 40) + "," + event("kernel", "c", 120, 20) + "," +
                             event("kernel", "e", 220, 10) + "," + event("kernel", "b", 150, 30) + "," +
                             event("kernel", "d", 170, 20) + "," + event("cpu_op", "f", 0, 1000);
  const auto p = read(write("t.json", trace(events)));
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_DOUBLE_EQ(p->gap_us.value(), 10 + 30);
  EXPECT_DOUBLE_EQ(p->overlap_us.value(), 20 + 10);
  EXPECT_EQ(p->kernels.front().name, "a");
  EXPECT_EQ(p->kernels.back().name, "e");
  EXPECT_DOUBLE_EQ(p->kernels.back().begin_us.at(0), 120);
  ASSERT_EQ(p->notes.size(), 1u);
  EXPECT_NE(p->notes[0].find("does not say how many runs"), std::string::npos);
}

TEST_F(TorchTrace, RunsThatDifferAreAverages) {
  const std::string events = event("kernel", "a", 0, 10) + "," + event("kernel", "a", 20, 10) + "," +
                             event("kernel", "b", 40, 10) + "," +
                             event("user_annotation", "ProfilerStep#1", 0, 25, "\"x\": 1") + "," +
                             event("user_annotation", "ProfilerStep#2", 25, 25, "\"x\": {\"device\": 9}");
  const auto p = read(write("t.json", trace(events)));
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->runs, 2);
  EXPECT_DOUBLE_EQ(p->kernel_us(), 15);
  EXPECT_FALSE(p->gap_us.has_value());
  EXPECT_EQ(p->notes.size(), 2u) << "calls are rounded, gaps are not told";
}

TEST_F(TorchTrace, AListOfEventsAndOlderNamesWill) {
  const auto p = read(write("t.json", "[" + event("Kernel", "gemm_fp16", 1, 2, "\"device\": 1") + "," +
                                          event("Memcpy", "Memcpy DtoD (Device -> Device)", 5, 1) + "," +
                                          event("Memset", "Memset (Device)", 7, 1) + "]"));
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->kernels.size(), 3u);
  EXPECT_EQ(p->machine, "");
  EXPECT_DOUBLE_EQ(us_of(*p, KernelClass::kCopy), 2);
  EXPECT_FALSE(p->gap_us.has_value()) << "of two GPUs";
}

TEST_F(TorchTrace, TheMachineIsTheOneThatRan) {
  const auto p = read(write("t.json", trace(event("kernel", "a", 0, 1, "\"device\": 1"))));
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->machine, "GPU B");
  EXPECT_EQ(p->capability, 89);
  const auto back = parse_profile(profile_json(*p));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->capability, 89);
  EXPECT_EQ(read(write("t.json", trace(event("kernel", "a", 0, 1, "\"device\": 0"))))->capability, 0) << "not told";
}

// The numbers are in the kernel's event, or in that of the call which launched it.
TEST_F(TorchTrace, OperatorsClassifyKernelsThatNoRuleKnows) {
  const std::string events = event("kernel", "my_kernel", 10, 8, R"("External id": 5, "correlation": 90)") + "," +
                             event("kernel", "my_kernel", 20, 4, R"("External id": 6, "correlation": 91)") + "," +
                             event("kernel", "other_kernel", 30, 2, R"("correlation": 92)") + "," +
                             event("kernel", "third_kernel", 40, 1, R"("External id": 8)") + "," +
                             event("kernel", "softmax_fp16", 50, 1, R"("External id": 5)") + "," +
                             event("cuda_runtime", "cudaLaunchKernel", 2, 1, R"("External id": 7, "correlation": 92)") +
                             "," + event("cpu_op", "aten::_scaled_mm", 1, 1, R"("External id": 5)") + "," +
                             event("cpu_op", "aten::gelu", 2, 1, R"("External id": 6)") + "," +
                             event("cpu_op", "aten::addmm", 3, 1, R"("External id": 7)") + "," +
                             event("cpu_op", "Torch-Compiled gemm Region", 4, 1, R"("External id": 8)");
  const auto p = read(write("t.json", trace(events)));
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_NEAR(us_of(*p, KernelClass::kGemm), 8 + 2, 1e-9);
  EXPECT_NEAR(us_of(*p, KernelClass::kElementwise), 4, 1e-9) << "one name, launched by two operators";
  EXPECT_NEAR(us_of(*p, KernelClass::kUnknown), 1, 1e-9) << "a region of a compiler is no operator";
  EXPECT_NEAR(us_of(*p, KernelClass::kSoftmax, "fp16"), 1, 1e-9) << "its name is known";
  ASSERT_FALSE(p->notes.empty());
  const bool said = std::any_of(p->notes.begin(), p->notes.end(), [](const std::string& n) {
    return n.find("No rule knows the names of 3 of 5 kernels") != std::string::npos;
  });
  EXPECT_TRUE(said) << p->notes.front();
}

TEST_F(TorchTrace, BadTracesAreRefusedInASentence) {
  EXPECT_NE(refusal(trace("")).find("no kernel of a GPU"), std::string::npos);
  EXPECT_NE(refusal(trace(event("gpu_memcpy", "Memcpy DtoD", 0, 1, "\"device\": 0"))).find("no kernel of a GPU"),
            std::string::npos)
      << "a copy is none";
  EXPECT_NE(refusal(trace(event("cpu_op", "aten::add", 0, 1))).find("1 events, but no kernel"), std::string::npos);
  EXPECT_NE(refusal(trace(event("kernel", "a", 0, -1))).find("event 1 (a) takes -1 us"), std::string::npos);
  EXPECT_NE(refusal(trace(event("kernel", "a", 0, 1e15))).find("takes 1e+15 us"), std::string::npos);
  EXPECT_NE(refusal(trace(R"({"ph": "X", "cat": "kernel", "name": "a", "ts": 1})")).find("takes nan us"),
            std::string::npos);
  EXPECT_NE(refusal(trace(R"({"ph": "X", "cat": "kernel", "name": "a", "dur": 1})")).find("begins at nan"),
            std::string::npos);
  EXPECT_NE(refusal(trace(R"({"ph": "X", "cat": "kernel", "name": "", "ts": 1, "dur": 1})")).find("without a name"),
            std::string::npos);
  EXPECT_NE(refusal(trace(event("kernel", "a", 0, 0))).find("take no time at all"), std::string::npos);
  EXPECT_NE(
      refusal(trace(R"({"ph": "X", "cat": "kernel", "name": "a", "ts": NaN, "dur": 1})")).find("not JSON at byte"),
      std::string::npos);
  EXPECT_NE(refusal(trace(event("kernel", "a", 0, 1)).substr(0, 200)).find("not JSON at byte"), std::string::npos);
  EXPECT_NE(refusal(trace(std::string(200, '['))).find("nested deeper than"), std::string::npos);
  EXPECT_NE(refusal(trace(event("kernel", std::string(3 << 20, 'x'), 0, 1))).find("string or number of more than"),
            std::string::npos);
  EXPECT_NE(refusal(trace(event("kernel", "a", 0, 1)), {.beside = {fixture("fp8_times.json")}}).find("no further file"),
            std::string::npos);
}

TEST_F(TorchTrace, GzipIsUnpackedAndBadGzipTold) {
  const std::string text = content(fixture("fp8_torch.json")), gz = gzip_of(text);
  const auto plain = read(fixture("fp8_torch.json")), unpacked = read(write("t.json.gz", gz));
  ASSERT_TRUE(unpacked.ok()) << unpacked.status().message();
  EXPECT_EQ(unpacked->kernel_us(), plain->kernel_us());
  EXPECT_NE(refusal(gz.substr(0, gz.size() / 2)).find("is cut short"), std::string::npos);
  EXPECT_NE(refusal(gz.substr(0, 12)).find("gzip"), std::string::npos);
  std::string damaged = gz;
  damaged[damaged.size() / 2] ^= 0x55;
  EXPECT_NE(refusal(damaged), "");
  damaged = gz;
  damaged[damaged.size() - 6] ^= 1;  // of the checksum
  EXPECT_NE(refusal(damaged).find("gzip data is damaged"), std::string::npos);
  EXPECT_NE(refusal(gz + "abc").find("bytes after the end"), std::string::npos);
}

// 500,000 events, 80 MB, are read in bounded memory and a second or two.
TEST_F(TorchTrace, HalfAMillionEvents) {
  std::string events;
  for (int i = 0; i < 500'000; ++i) {
    if (i > 0) events += ",\n";
    events += i % 5 == 0 ? event("kernel", i % 2 == 0 ? "nvjet_sm90_qqhsh_x" : "layer_norm", i * 10.0, 5)
                         : event("cpu_op", "aten::add", i, 1, R"("Sequence number": 5, "dims": [[1, 2], [3]])");
  }
  const auto p = read(write("t.json", trace(events)));
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->kernels.size(), 2u);
  EXPECT_EQ(p->kernels[0].calls + p->kernels[1].calls, 100'000);
  EXPECT_DOUBLE_EQ(p->kernel_us(), 500'000);
}

// 80 MB in 80 kB, all one string: nothing of that size is ever held.
TEST_F(TorchTrace, GzipBombsAreRefused) {
  const std::string text = gzip_of(std::string(8 << 20, 'a'));
  std::string bomb = gzip_of("{\"traceEvents\": [\"");
  for (int i = 0; i < 10; ++i) bomb += text;
  EXPECT_NE(refusal(bomb).find("string or number of more than"), std::string::npos);
}

// The two traces that lie beside the project: totals are those of the trace, and hardly anything stays unclassified.
class RealTraces : public testing::TestWithParam<const char*> {};

TEST_P(RealTraces, TotalsAndClasses) {
  const std::string path = shared_profile(GetParam());
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data";
  const auto p = read_profile(path, with_built_in({}));
  ASSERT_TRUE(p.ok()) << p.status().message();
  const std::string bytes = content(path);
  const auto text = unpack_gzip({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, 1 << 30);
  ASSERT_TRUE(text.ok());
  double total = 0;
  int64_t calls = 0;
  const auto trace = nlohmann::json::parse(*text);
  for (const auto& e : trace.at("traceEvents")) {
    const std::string category = e.value("cat", "");
    if (category != "kernel" && category != "gpu_memset" && category != "gpu_memcpy") continue;
    total += e.at("dur").get<double>();
    ++calls;
  }
  const double copies = p->host_to_device_us.value_or(0) + p->device_to_host_us.value_or(0);
  EXPECT_NEAR(p->kernel_us() + copies, total, total * 1e-3);
  int64_t counted = 0;
  for (const KernelTime& k : p->kernels) counted += k.calls;
  EXPECT_EQ(counted, calls);
  EXPECT_LE(us_of(*p, KernelClass::kUnknown) + us_of(*p, KernelClass::kOther), 0.01 * total);
  EXPECT_EQ(p->machine, "NVIDIA H200");
  EXPECT_EQ(p->capability, 90);
  const bool fp8 = std::string(GetParam()).find("fp8") != std::string::npos;
  EXPECT_GT(us_of(*p, KernelClass::kGemm, fp8 ? "fp8" : "fp16"), 0.35 * total);
  EXPECT_GT(us_of(*p, KernelClass::kAttention, "fp16"), 0.08 * total);
  EXPECT_GT(us_of(*p, KernelClass::kNorm), 0.08 * total);
  EXPECT_TRUE(p->gap_us.has_value());
}

INSTANTIATE_TEST_SUITE_P(Files, RealTraces, testing::Values("torch_fp16_eager.json.gz", "torch_fp8_compile.json.gz"),
                         [](const auto& info) { return info.index == 0 ? "fp16_eager" : "fp8_compile"; });

}  // namespace
}  // namespace tessera
