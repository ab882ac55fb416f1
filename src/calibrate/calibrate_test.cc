// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "calibrate/ranges_file.h"
#include "io/atomic_file.h"
#include "io/npz.h"
#include "ir/text.h"

namespace tessera {
namespace {

constexpr int64_t kNumbers = 4 * 16;  // of a sample

Graph block(int64_t batch) {
  std::string text = R"(graph block {
  in %image: f32[B,4,16]
  const %we: f32[32,16] = seed(1)
  const %g: f32[32] = seed(2)
  const %w1: f32[64,32] = seed(3)
  const %wh: f32[10,64] = seed(5)
  %e: f32[B,4,32] = matmul(%image, %we) @"embed"
  %n: f32[B,4,32] = norm(%e, %g) {eps=0.000001, kind="layer"} @"norm1"
  %h: f32[B,4,64] = matmul(%n, %w1) then act(gelu_erf) @"mlp.fc1"
  %y: f32[B,4,10] = matmul(%h, %wh) @"head"
  out %y
}
)";
  for (size_t at = text.find("[B,"); at != std::string::npos; at = text.find("[B,"))
    text.replace(at + 1, 1, std::to_string(batch));
  auto g = parse_graph(text);
  EXPECT_TRUE(g.ok()) << g.status().message();
  return std::move(g).value();
}

class Calibrate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              cat("tessera_calibrate_", getpid(), "_", testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directory(folder_);
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    x_.resize(5 * kNumbers);
    for (float& v : x_) v = normal(random);
    x_[3 * kNumbers + 7] = -9;
    write(x_, 5);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::vector<float>& x, int64_t samples) {
    const Array a = make_array("image", {samples, 4, 16}, x);
    ASSERT_TRUE(write_npz(path("in.npz"), {&a, 1}).ok());
  }
  Ranges measured(int64_t batch, CalibrateOptions options = {}) {
    if (options.path.empty()) options.path = path("in.npz");
    auto r = calibrate(block(batch), options);
    EXPECT_TRUE(r.ok()) << r.status().message();
    return r.ok() ? *r : Ranges{};
  }
  std::filesystem::path folder_;
  std::vector<float> x_;
};

TEST_F(Calibrate, AFilledUpBatchCountsNoSampleTwice) {
  const Ranges one = measured(1);
  EXPECT_EQ(one, measured(2));  // the last run has one sample and a filler
  EXPECT_EQ(one, measured(4));
  EXPECT_EQ(one, measured(16));  // all fillers but five
  EXPECT_EQ(one.samples, 5);
  EXPECT_EQ(one.values.at("image").amax, 9);
  for (const char* name : {"image", "e", "n", "h", "y"}) EXPECT_TRUE(one.values.contains(name)) << name;
  EXPECT_EQ(one.values.size(), 6u);
  // The norm before its gain: a row of 32 whose deviation is 1.
  const float plain = one.values.at("n.plain").amax;
  EXPECT_GT(plain, 1);
  EXPECT_LT(plain, std::sqrt(32.0f));
  EXPECT_NE(plain, one.values.at("n").amax);
  EXPECT_EQ(one.how, "amax over 5 samples of in.npz");
  EXPECT_TRUE(one.warnings.empty()) << one.warnings[0];
}

TEST_F(Calibrate, MethodsChooseTheClip) {
  const Ranges amax = measured(2);
  EXPECT_EQ(amax.clip("image", Element::e4m3), 9);
  EXPECT_FALSE(amax.clip("nothing", Element::e4m3));
  const Ranges percentile = measured(2, {.method = RangeMethod{RangeMethod::kPercentile, 97.5}});
  EXPECT_EQ(percentile.clip("image", Element::i8), percentile.values.at("image").percentiles.at(97.5));
  EXPECT_LT(*percentile.clip("image", Element::i8), 9);
  EXPECT_EQ(percentile.how, "percentile=97.5 over 5 samples of in.npz");
  const Ranges mse = measured(2, {.method = RangeMethod{RangeMethod::kMse}});
  EXPECT_EQ(mse.clip("h", Element::i8), mse.values.at("h").mse.at(Element::i8));
  EXPECT_FALSE(mse.clip("h", Element::f16));
  EXPECT_EQ(measured(2, {.samples = 3}).samples, 3);
  EXPECT_LT(measured(2, {.samples = 3}).values.at("image").amax, 9);
}

TEST_F(Calibrate, NumbersThatAreNotFiniteNameTheirSample) {
  x_[4 * kNumbers + 1] = std::numeric_limits<float>::quiet_NaN();
  write(x_, 5);
  const auto r = calibrate(block(2), {.path = path("in.npz")});
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.status().message().find("first in sample 4"), std::string::npos) << r.status().message();
  EXPECT_TRUE(calibrate(block(2), {.path = path("in.npz"), .samples = 4}).ok());
}

TEST_F(Calibrate, UselessSamplesAreSaidToBe) {
  const auto warned = [&](const std::vector<float>& x, int64_t samples, const char* what) {
    write(x, samples);
    std::string all;
    for (const std::string& w : measured(2).warnings) all += w + "; ";
    EXPECT_NE(all.find(what), std::string::npos) << all;
  };
  warned(std::vector<float>(3 * kNumbers, 0), 3, "'image' is zero in every sample");
  warned(std::vector<float>(3 * kNumbers, 2), 3, "one number throughout in 3 of 3");
  warned(std::vector<float>(3 * kNumbers, 2), 3, "the same in all 3");
  warned(std::vector<float>(x_.begin(), x_.begin() + kNumbers), 1, "a single sample");
}

TEST_F(Calibrate, TheFileReadsBackBitEqual) {
  Ranges want = measured(2, {.method = RangeMethod{RangeMethod::kPercentile, 99.5}});
  want.warnings = {"a \"quoted\" warning"};
  want.preprocess = "size=8x8";
  std::mt19937 random(6);
  for (int i = 0; i < 2000; ++i) {  // any float is printed so that it reads back
    float x;
    const uint32_t bits = random() & 0x7fffffff;
    std::memcpy(&x, &bits, sizeof(x));
    if (std::isfinite(x)) want.values[cat("v", i)] = x;
  }
  want.values["mask"] = std::numeric_limits<float>::infinity();
  const std::string text = print_ranges(want);
  const auto got = parse_ranges(text);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(*got, want);
  EXPECT_EQ(print_ranges(*got), text);
}

TEST_F(Calibrate, AFileOfRangesServesInsteadOfSamples) {
  const Ranges made = measured(2);
  std::string text = print_ranges(made);
  ASSERT_TRUE(write_file(path("r.json"), text).ok());
  Ranges read = measured(4, {.path = path("r.json")});
  EXPECT_EQ(read.values, made.values);
  EXPECT_EQ(read.how, "amax over 5 samples of in.npz (r.json)");
  read = measured(4, {.path = path("r.json"), .method = RangeMethod{RangeMethod::kMse}});
  EXPECT_EQ(read.clip("h", Element::i8), made.values.at("h").mse.at(Element::i8));
  EXPECT_EQ(read.how, "mse over 5 samples of in.npz (r.json)");

  text.insert(text.find("\"h\": {") + 6, "\"clip\": 1.5, ");
  ASSERT_TRUE(write_file(path("r.json"), text).ok());
  read = measured(4, {.path = path("r.json")});
  EXPECT_EQ(read.clip("h", Element::i8), 1.5f);
  EXPECT_EQ(read.how, "amax over 5 samples of in.npz, edited by hand (r.json, 1 clip set by hand)");
}

// Whatever is edited, the record says that something was, and names the method whose clips are used.
TEST_F(Calibrate, TheRecordOfAnEditedFileIsTrue) {
  const std::string good = print_ranges(measured(2));
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    EXPECT_NE(text, good) << from;
    EXPECT_TRUE(write_file(path("r.json"), text).ok());
    return measured(4, {.path = path("r.json")}).how;
  };
  EXPECT_EQ(edited("\"method\": \"amax\"", "\"method\": \"mse\""),
            "mse over 5 samples of in.npz, edited by hand (r.json)");
  EXPECT_EQ(edited("\"samples\": 5", "\"samples\": 5000"), "amax over 5 samples of in.npz, edited by hand (r.json)");
  EXPECT_EQ(edited("amax over 5 samples", "mse over 5000 samples"),
            "amax over 5000 samples of in.npz, edited by hand (r.json)");
  EXPECT_EQ(edited("amax over 5 samples of in.npz", "the best"), "amax over the best, edited by hand (r.json)");
  EXPECT_EQ(edited("\"preprocess\": \"\"", "\"preprocess\": \"size=8x8\""),
            "amax over 5 samples of in.npz, edited by hand (r.json)");
  EXPECT_EQ(edited("\"warnings\": []", "\"warnings\": [\"w\"]"),
            "amax over 5 samples of in.npz, edited by hand (r.json)");
  EXPECT_EQ(measured(2, {.samples = 1}).how, "amax over 1 sample of in.npz");
}

TEST_F(Calibrate, WrongFilesOfRangesGetOneSentence) {
  const std::string good = print_ranges(measured(2));
  const auto refused = [&](const std::string& from, const std::string& to, const char* why, RangeMethod method = {}) {
    std::string text = good;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    ASSERT_TRUE(write_file(path("r.json"), text).ok());
    const auto r = calibrate(block(2), {.path = path("r.json"), .method = method});
    ASSERT_FALSE(r.ok()) << to;
    EXPECT_NE(r.status().message().find(why), std::string::npos) << r.status().message();
    EXPECT_NE(r.status().message().find("r.json: "), std::string::npos) << r.status().message();
  };
  const std::string amax = "\"image\": {\"amax\": 9";
  refused(amax, "\"image\": {\"amax\": -9", "value 'image': amax is -9; a magnitude is not negative");
  refused(amax, "\"image\": {\"amax\": NaN", "is not JSON at byte");
  refused(amax, "\"image\": {\"amax\": 1e300", "that is no f32");
  refused(amax, "\"image\": {\"amax\": null", "wanted a finite number");
  refused(amax, "\"image\": {\"clip\": 0, \"amax\": 9", "clip is 0");
  refused(amax, "\"image\": {\"amin\": 0, \"amax\": 9", "'amin' is not one of");
  refused("\"amax\": 9,", "", "value 'image' has no \"amax\"");
  refused("\"image\": {", "\"picture\": {", "has no value 'picture'");
  refused("\"h\": {\"amax\"", "\"e\": {\"amax\"", "repeats the key 'e'");
  refused("\"percentiles\": {\"99\"", "\"percentiles\": {\"101\"", "percentile from 50 to below 100");
  refused("\"mse\": {\"e4m3\"", "\"mse\": {\"e5m2\"", "is no element of activations");
  refused("\"method\": \"amax\"", "\"method\": \"largest\"", "method: 'largest' is no way");
  refused("\"weights\": \"", "\"weights\": \"0", "other weights");
  refused("ranges 1", "ranges 2", "wanted 'ranges 1'");
  refused("\"samples\": 5", "\"samples\": -5", "'samples' is not a count");
  refused("amax", "amax", "has no percentile=98 for", RangeMethod{RangeMethod::kPercentile, 98});
  std::string text = good;
  const size_t line = text.find("    \"h\": {");
  text.erase(line, text.find('\n', line) - line + 1);
  ASSERT_TRUE(write_file(path("r.json"), text).ok());
  EXPECT_NE(calibrate(block(2), {.path = path("r.json")}).status().message().find("has no range for 'h'"),
            std::string::npos);
  // Files that were made without the plain norms have ranges of all that the model has.
  text = good;
  const size_t plain = text.find("    \"n.plain\": {");
  text.erase(plain, text.find('\n', plain) - plain + 1);
  ASSERT_TRUE(write_file(path("r.json"), text).ok());
  EXPECT_TRUE(calibrate(block(2), {.path = path("r.json")}).ok());
}

}  // namespace
}  // namespace tessera
