// SPDX-License-Identifier: Apache-2.0
#include "traces/reader.h"

#include <gtest/gtest.h>

#include "traces/format.h"
#include "traces/test_files.h"
#include "traces/timeline.h"

namespace tessera {
namespace {

class Reader : public ScratchFiles {};

TEST_F(Reader, OwnProfilesComeBackAsTheyWere) {
  Profile p{.source = "tessera", .path = "m.tess", .model = "vit", .precision = "fp8", .machine = "NVIDIA H200"};
  p.kernels = {{.name = "matmul/sm90_fp8 128x256",
                .layer = "blocks.0.fc1",
                .kernel_class = KernelClass::kGemm,
                .precision = "fp8",
                .asked = "fp8",
                .calls = 2,
                .us = 3.5,
                .flops = 1e9,
                .begin_us = {0, 2},
                .end_us = {1.5, 4}}};
  p.latency = Latency{.mean_ms = 1, .median_ms = 1, .runs = 10};
  p.notes = {"A note."};
  const auto again = read(write("p.json", profile_json(p)));
  ASSERT_TRUE(again.ok()) << again.status().message();
  p.path = path("p.json");
  EXPECT_EQ(profile_json(*again), profile_json(p));
}

TEST_F(Reader, ForeignAndBrokenFilesAreRefusedInASentence) {
  for (const std::string& bytes :
       {std::string("hello"), std::string("{}"), std::string("[]"), std::string("[1, 2]"),
        std::string("{\"a\": {\"traceEvents\": []}}"),
        std::string("\x7f"
                    "ELF\0\1\2",
                    7),
        std::string(100'000, '\0'), std::string("PK\3\4"), std::string("{\"format\": \"x\"}")}) {
    const std::string said = refusal(bytes);
    EXPECT_NE(said.find("is no profile that is read; it would have to be what `tessera profile --json` writes"),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("nsys export"), std::string::npos) << said;
  }
  EXPECT_NE(refusal(std::string("\x1f\x8b", 2)).find("gzip"), std::string::npos);
  EXPECT_NE(refusal(R"({"format": "tessera profile", "version": 99})").find("version 99"), std::string::npos);
  EXPECT_NE(refusal(R"({"format": "tessera profile", "version": 1, "kernels": []})").find("holds no kernel"),
            std::string::npos);
  const auto empty = read(write("empty", ""));
  EXPECT_NE(empty.status().message().find("the file is empty"), std::string::npos);
  EXPECT_NE(read(path("")).status().message().find("is a folder"), std::string::npos);
  EXPECT_FALSE(read(path("missing")).ok());
}

TEST_F(Reader, TheNameOfTheFileDoesNotMatter) {
  for (const char* name : {"fp8_torch.json", "fp8_profile.json", "seed_fp16.json"}) {
    const auto p = read(write("x.sqlite", content(fixture(name))));
    EXPECT_TRUE(p.ok()) << name << ": " << p.status().message();
  }
}

TEST_F(Reader, TimesThatNothingTakesAreRefused) {
  const auto with = [&](const char* us) {
    return read(write("p.json", std::string(R"({"format": "tessera profile", "version": 1, "source": "tessera",)") +
                                    R"( "runs": 1, "kernels": [{"name": "k", "class": "gemm", "calls": 1, "us": )" +
                                    us + "}]}"));
  };
  EXPECT_TRUE(with("12.5").ok()) << with("12.5").status().message();
  for (const char* us : {"1e308", "1e13", "1e-300"})
    EXPECT_NE(with(us).status().message().find("which nothing takes or reaches"), std::string::npos) << us;
}

TEST_F(Reader, OwnProfilesThatWereCutAreRefused) {
  const auto with = [&](const std::string& kernels, const char* kernel_us) {
    return refusal(cat(R"({"format": "tessera profile", "version": 1, "source": "tessera", "kernel_us": )", kernel_us,
                       R"(, "kernels": [)", kernels, "]}"));
  };
  const std::string one = R"({"name": "k", "class": "gemm", "us": 4})", timeless = R"({"name": "k", "class": "gemm"})";
  EXPECT_EQ(with(one + "," + one, "8"), "");
  EXPECT_NE(with(one + "," + timeless, "8").find("kernel 1 has no time"), std::string::npos);
  EXPECT_NE(with(one, "8").find("\"kernel_us\" is 8, but its kernels take 4 us"), std::string::npos);
}

TEST_F(Reader, ManyDifferentNamesAreRefusedInEveryFormat) {
  std::string own = R"({"format": "tessera profile", "version": 1, "source": "tessera", "kernels": [)", trt = "[";
  for (int i = 0; i < 51'000; ++i) {
    own += cat(i == 0 ? "" : ",", R"({"name": "k)", i % 30'000, R"(", "layer": "l)", i % 30'000, R"(", "us": 1})");
    trt += cat(i == 0 ? "" : ",", R"({"name": "k)", i, R"(", "timeMs": 1})");
  }
  for (const std::string& text : {own + "]}", trt + "]"})
    EXPECT_NE(refusal(text).find("holds more than 50000 different names"), std::string::npos) << text.substr(0, 40);
}

TEST_F(Reader, RatesThatNoMachineHasAreRefused) {
  const auto with = [&](const char* ceilings) {
    return refusal(cat(R"({"format": "tessera profile", "version": 1, "source": "tessera", "ceilings": {)", ceilings,
                       R"(}, "kernels": [{"name": "k", "class": "gemm", "calls": 1, "us": 1}]})"));
  };
  EXPECT_EQ(with(R"("bytes_per_s": 1e12, "flops_per_s": {"fp8": 1e15})"), "");
  EXPECT_NE(with(R"("bytes_per_s": 1e-30)").find("a rate is below one a second"), std::string::npos);
  EXPECT_NE(with(R"("flops_per_s": {"fp8": 1e-30})").find("a rate is below one a second"), std::string::npos);
}

TEST_F(Reader, FilesAreToldFromTheirBeginning) {
  const auto kind = [](const std::string& file) { return kind_of_profile(file).value(); };
  for (const char* name : {"fp8_profile.json", "fp8_torch.json", "fp8_nsight.sqlite", "seed_fp16.json"})
    EXPECT_EQ(kind(fixture(name)), ProfileKind::kProfile) << name;
  for (const char* name : {"fp8_layers.json", "fp8_times.json"})
    EXPECT_EQ(kind(fixture(name)), ProfileKind::kCompanion) << name;
  EXPECT_EQ(kind(write("x.json", "{\"a\": 1}")), ProfileKind::kNone);
  EXPECT_FALSE(kind_of_profile(path("missing")).ok());
}

TEST_F(Reader, OwnTimelinesAreNoProfiles) {
  const auto p = read(write("t.json", R"({"tesseraTimeline":1,"displayTimeUnit":"ns","traceEvents":[]})"));
  EXPECT_NE(p.status().message().find("give what profile --json prints"), std::string::npos) << p.status().message();
}

TEST_F(Reader, RulesOfAFileComeFirst) {
  const auto rules = read_rules(write("my.rules", "_gemm_mha* gemm int4\n"));
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  const auto p = read_profile(fixture("seed_fp16.json"), *rules);
  ASSERT_TRUE(p.ok());
  EXPECT_NEAR(us_of(*p, KernelClass::kGemm, "int4"), 534, 1e-6);
  EXPECT_NEAR(us_of(*p, KernelClass::kGemm, "fp16"), 6362.4, 1e-6);
  EXPECT_NE(read_rules(write("my.rules", "a b c")).status().message().find("my.rules:1: 'b' is no class"),
            std::string::npos);
  EXPECT_NE(read_rules(write("my.rules", std::string(2 << 20, '\n'))).status().message().find("rules may have"),
            std::string::npos);
  EXPECT_FALSE(read_rules(path("missing")).ok());
}

TEST(Timeline, RefusesWhatNoGpuMeasures) {
  Timeline t;
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(t.add({.begin_us = 0, .us = -1}, "k").ok());
  EXPECT_FALSE(t.add({.begin_us = 0, .us = inf}, "k").ok());
  EXPECT_FALSE(t.add({.begin_us = inf, .us = 1}, "k").ok());
  EXPECT_FALSE(t.add_copy(Timeline::Direction::kHostToDevice, -1, "k").ok());
  EXPECT_EQ(t.size(), 0u);
}

TEST(Timeline, ManyDifferentNamesAreRefused) {
  Timeline t;
  Status last;
  for (int i = 0; i < 60'000 && last.ok(); ++i) last = t.keep(cat("kernel ", i)).status();
  EXPECT_NE(last.message().find("different names"), std::string::npos);
}

}  // namespace
}  // namespace tessera
