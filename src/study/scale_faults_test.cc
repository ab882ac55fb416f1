// SPDX-License-Identifier: Apache-2.0
// Weights in every type, right and with one planted fault: what is wrong is said, and nothing is said of a right one.
#include "study/scale_faults.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ops/reference.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 96, kCols = 160;

class Weight {
 public:
  explicit Weight(const std::string& type, uint64_t seed = 7) : type_(*parse_quant_type(type)) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::vector<float> numbers;
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      // Rows and columns of their own size, as trained weights have them.
      const double row = static_cast<double>(i / kCols % 7), col = static_cast<double>(i % 5);
      const double size = 0.02 * (1 + 0.5 * row) * (1 + 0.3 * col);
      numbers.push_back(static_cast<float>(size * normal(random)));
    }
    exact.assign(numbers.begin(), numbers.end());
    auto made = quantize_array(type_, numbers.data(), kRows, kCols);
    EXPECT_TRUE(made.ok()) << made.status().message();
    array = std::move(made).value();
    desc_ = dense_operand({kRows, kCols}, type_, true);
  }
  WeightFit judged() {
    TensorView t{.desc = &desc_, .data = array.codes.data()};
    if (array.scale.size() > 0) t.scale = array.scale.data();
    if (array.scale2.size() > 0) t.scale2 = array.scale2.data();
    return judge_weight(t, exact);
  }
  void expect_said(const std::string& words) {
    const WeightFit fit = judged();
    EXPECT_TRUE(fit.finding.fault) << words;
    EXPECT_NE(fit.finding.text.find(words), std::string::npos) << fit.finding.text;
  }

  std::vector<double> exact;
  QuantizedArray array;

 private:
  QuantType type_;
  Operand desc_;
};

const char* const kTypes[] = {"e4m3:channel(f32)",
                              "e4m3:tensor(f32)",
                              "e4m3:block32(e8m0)",
                              "e2m1:block16(e4m3):tensor(f32)",
                              "e2m1:block16(e4m3):tensor(f32):as(e4m3)",
                              "i8:channel(f32)",
                              "f16"};

TEST(ScaleFaults, NothingIsSaidOfAWeightAsQuantized) {
  for (const char* type : kTypes) {
    for (uint64_t seed = 1; seed < 4; ++seed) {
      Weight w(type, seed);
      const WeightFit fit = w.judged();
      EXPECT_EQ(fit.finding.text, "") << type;
      EXPECT_GT(fit.relative_l2, 0) << type;
    }
  }
}

TEST(ScaleFaults, SwappedNibbles) {
  Weight w("e2m1:block16(e4m3):tensor(f32)");
  for (size_t i = 0; i < w.array.codes.size(); ++i) {
    uint8_t& b = w.array.codes.data()[i];
    b = static_cast<uint8_t>(b << 4 | b >> 4);
  }
  w.expect_said("the two codes of each byte are swapped");
}

TEST(ScaleFaults, TransposedScales) {
  for (const char* type : {"e2m1:block16(e4m3):tensor(f32)", "e4m3:block32(e8m0)"}) {
    Weight w(type);
    const size_t blocks = w.array.scale.size() / kRows;
    std::vector<uint8_t> turned(w.array.scale.size());
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t b = 0; b < blocks; ++b) turned[b * kRows + r] = w.array.scale.data()[r * blocks + b];
    }
    std::memcpy(w.array.scale.data(), turned.data(), turned.size());
    w.expect_said("its scales lie transposed");
  }
}

TEST(ScaleFaults, BlocksAlongTheOtherAxis) {
  // Quantized as its transpose is, then laid out in rows again: codes of blocks that run along axis 0.
  Weight w("e2m1:block16(e4m3):tensor(f32)");
  std::vector<float> turned;
  for (int64_t c = 0; c < kCols; ++c) {
    for (int64_t r = 0; r < kRows; ++r)
      turned.push_back(static_cast<float>(w.exact[static_cast<size_t>(r * kCols + c)]));
  }
  auto made = quantize_array(*parse_quant_type("e2m1:block16(e4m3):tensor(f32)"), turned.data(), kCols, kRows);
  ASSERT_TRUE(made.ok());
  std::memset(w.array.codes.data(), 0, w.array.codes.size());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      const int64_t from = c * kRows + r, to = r * kCols + c;
      const int code = made->codes.data()[from / 2] >> (from % 2 * 4) & 15;
      w.array.codes.data()[to / 2] |= static_cast<uint8_t>(code << (to % 2 * 4));
      if (r % 16 == 0) w.array.scale.data()[r / 16 * kCols + c] = made->scale.data()[c * (kRows / 16) + r / 16];
    }
  }
  std::memcpy(w.array.scale2.data(), made->scale2.data(), 4);
  w.expect_said("run along axis 0");
}

void multiply(Buffer& scales, float factor) {
  for (size_t i = 0; i < scales.size() / 4; ++i) {
    float x;
    std::memcpy(&x, scales.data() + 4 * i, 4);
    x *= factor;
    std::memcpy(scales.data() + 4 * i, &x, 4);
  }
}

TEST(ScaleFaults, WrongGlobalScale) {
  for (const char* type : {"e2m1:block16(e4m3):tensor(f32)", "e2m1:block16(e4m3):tensor(f32):as(e4m3)"}) {
    Weight large(type), small(type);
    multiply(large.array.scale2, 6);
    large.expect_said("its scales are 6x too large");
    multiply(small.array.scale2, 0.5f);
    small.expect_said("its scales are 2x too small");
  }
}

TEST(ScaleFaults, IgnoredScale) {
  for (const char* type : {"e4m3:channel(f32)", "i8:channel(f32)"}) {
    Weight w(type);
    for (size_t i = 0; i < w.array.scale.size() / 4; ++i) {
      const float one = 1;
      std::memcpy(w.array.scale.data() + 4 * i, &one, 4);
    }
    const WeightFit fit = w.judged();
    EXPECT_TRUE(fit.finding.fault) << type;
    EXPECT_GT(fit.relative_l2, 10) << type;
  }
}

TEST(ScaleFaults, AnotherLayersWeight) {
  for (const char* type : kTypes) {
    Weight w(type), other(type, 8);
    w.exact = other.exact;
    w.expect_said("it is not this layer's weight");
  }
}

// Activations in e4m3 with one static scale, made for an amax that is `factor` times too small.
Finding saturated(float factor, std::vector<float>& numbers) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  numbers.resize(4096);
  float amax = 0;
  for (float& x : numbers) x = normal(random), amax = std::max(amax, std::fabs(x));
  const float scale = amax / 448 / factor;
  std::vector<uint8_t> codes(numbers.size());
  const Operand desc = dense_operand({64, 64}, kE4m3PerTensor);
  TensorView t{.desc = &desc, .data = codes.data(), .scale = const_cast<float*>(&scale)};
  encode({desc.shape, {numbers.begin(), numbers.end()}}, t);
  return judge_activation(t, numbers);
}

TEST(ScaleFaults, ActivationsThatSaturate) {
  std::vector<float> numbers;
  EXPECT_EQ(saturated(1, numbers).text, "");
  EXPECT_EQ(saturated(1.2f, numbers).text, "");  // a percentile clips so much
  const Finding f = saturated(40, numbers);
  EXPECT_TRUE(f.fault);
  EXPECT_EQ(f.text.find("activation scale 40x too small, 9"), 0u) << f.text;
  EXPECT_NE(f.text.find(" % of codes saturate"), std::string::npos) << f.text;
  EXPECT_EQ(saturated(1.0f / 64, numbers).text, "") << "e4m3 has range to spare";
  const Finding lost = saturated(1e-6f, numbers);
  EXPECT_TRUE(lost.fault);
  EXPECT_NE(lost.text.find("too large, "), std::string::npos) << lost.text;
}

// Normal numbers in e2m1 with block scales under one static second level that is made for `factor` times their amax;
// `known`: the judge sees the numbers themselves.
Finding under_global_scale(float factor, bool known = true, bool stated = false) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(4096);
  float amax = 0;
  for (float& x : numbers) x = normal(random), amax = std::max(amax, std::fabs(x));
  for (size_t i = 0; i < 64; ++i) numbers[i] = 0;  // blocks of zeros have the scale 1, whatever the second level is
  float scale2 = amax * factor / (448 * 6);
  std::vector<uint8_t> codes(numbers.size() / 2, 0xa5), scales(numbers.size() / 16, 0xa5);
  const Operand desc = dense_operand({64, 64}, *parse_quant_type("e2m1:block16(e4m3):tensor(f32)!"));
  const TensorView t{.desc = &desc, .data = codes.data(), .scale = scales.data(), .scale2 = &scale2};
  encode({desc.shape, {numbers.begin(), numbers.end()}}, t);
  if (stated) return judge_stated(t);
  return judge_activation(t, known ? std::span<const float>(numbers) : std::span<const float>());
}

TEST(ScaleFaults, GlobalScalesThatAreTooLarge) {
  for (const float factor : {1.0f, 16.0f, 1024.0f})
    EXPECT_EQ(under_global_scale(factor).text, "") << factor << ": block scales have range to spare";
  for (const float factor : {1e6f, 1e12f, 1e36f}) {
    const Finding f = under_global_scale(factor);
    EXPECT_TRUE(f.fault && f.of_calibration) << factor;
    EXPECT_EQ(f.text.find("global activation scale "), 0u) << f.text;
    EXPECT_NE(f.text.find("x too large, 98 % of block scales underflow"), std::string::npos) << f.text;
    EXPECT_LT(f.text.size(), 90u) << f.text;  // thirty digits say less than two and a power
  }
}

TEST(ScaleFaults, GlobalScalesThatAreTooSmall) {
  // A little: half of the block scales may saturate, and what that costs is less than a rounding.
  const Finding little = under_global_scale(1 / 1.9f);
  EXPECT_FALSE(little.fault) << little.text;
  EXPECT_EQ(little.text.find("global activation scale 1.9x too small, "), 0u) << little.text;
  EXPECT_TRUE(little.of_calibration);
  const Finding far = under_global_scale(1 / 4.0f);
  EXPECT_TRUE(far.fault) << far.text;
  EXPECT_EQ(far.text.find("global activation scale 4x too small, 9"), 0u) << far.text;
}

TEST(ScaleFaults, NothingIsAFaultWhereTheNumbersAreNotKnown) {
  const Finding f = under_global_scale(1 / 4.0f, /*known=*/false);
  EXPECT_EQ(f.text.find("global activation scale too small, 9"), 0u) << f.text;
  EXPECT_FALSE(f.fault);
}

TEST(ScaleFaults, ScalesThatTheModelStatesAreTheModel) {
  EXPECT_EQ(under_global_scale(1, true, /*stated=*/true).text, "");
  const Finding f = under_global_scale(1 / 4.0f, true, /*stated=*/true);
  EXPECT_FALSE(f.fault || f.of_calibration);
  EXPECT_NE(f.text.find(" % of its input's block scales saturate, under the scale that the model states"),
            std::string::npos)
      << f.text;
}

TEST(ScaleFaults, ResultsBeyondF16) {
  std::vector<float> numbers(256, 1.0f);
  numbers[9] = 70000;
  std::vector<uint16_t> codes(numbers.size());
  const Operand desc = dense_operand({16, 16}, Element::f16);
  const TensorView t{.desc = &desc, .data = codes.data()};
  const Finding f = judge_activation(t, numbers);
  EXPECT_EQ(f.text.find("1 of 256 results lie beyond 65504"), 0u) << f.text;
  EXPECT_FALSE(f.fault);
  numbers[10] = -3.4e38f;  // hides a key: one is a fault
  const Finding mask = judge_activation(t, numbers);
  EXPECT_EQ(mask.text.find("1 of 256 results are numbers that hide keys"), 0u) << mask.text;
  EXPECT_TRUE(mask.fault);
}

TEST(ScaleFaults, TheLargestCodeOfAMaskIsMeant) {
  const float scale = 2.7e36f;
  const std::vector<float> numbers(256, -3.4e38f);
  const std::vector<int8_t> codes(numbers.size(), -127);
  const Operand desc = dense_operand({16, 16}, *parse_quant_type("i8:tensor(f32)"));
  const TensorView t{.desc = &desc, .data = const_cast<int8_t*>(codes.data()), .scale = const_cast<float*>(&scale)};
  EXPECT_EQ(judge_activation(t, numbers).text, "");
  EXPECT_EQ(judge_activation(t, {}).text, "");
  EXPECT_EQ(judge_stated(t).text, "");
}

}  // namespace
}  // namespace tessera
