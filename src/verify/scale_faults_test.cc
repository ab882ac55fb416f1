// SPDX-License-Identifier: Apache-2.0
// Activations under scales that are too small or too large: what is wrong is said, and nothing is said of right ones.
#include "verify/scale_faults.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "op/reference.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

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

// A scale that was made of these very numbers says nothing, whatever share of them is the largest: one of 64 (1.6 %),
// as of a short sentence's pooled token, or those of a tanh that is 1 nearly everywhere.
TEST(ScaleFaults, TheAmaxItselfIsNotSaturated) {
  const auto judged = [](const std::vector<float>& numbers, float scale, const QuantType& type, bool known) {
    std::vector<uint8_t> codes(numbers.size());
    const Operand desc = dense_operand({1, static_cast<int64_t>(numbers.size())}, type);
    const TensorView t{.desc = &desc, .data = codes.data(), .scale = &scale};
    encode({desc.shape, {numbers.begin(), numbers.end()}}, t);
    return judge_activation(t, known ? std::span<const float>(numbers) : std::span<const float>());
  };
  std::vector<float> one(64, 0.25f), most(64, 1.0f);
  one[5] = -3, most[7] = 0.5f;
  for (const bool known : {true, false}) {
    EXPECT_EQ(judged(one, 3.0f / 448, kE4m3PerTensor, known).text, "") << known;
    EXPECT_EQ(judged(one, 3.0f / 127, *parse_quant_type("i8:tensor(f32)"), known).text, "") << known;
    EXPECT_EQ(judged(one, 1.0f / 448, kE4m3PerTensor, known).text,
              known ? "activation scale 3x too small, 1.6 % of codes saturate" : "")
        << known;
  }
  EXPECT_EQ(judged(most, 1.0f / 448, kE4m3PerTensor, true).text, "");
  // Numbers that are not known: the largest code nearly everywhere may be right, and it is no fault.
  const Finding guess = judged(most, 1.0f / 448, kE4m3PerTensor, false);
  EXPECT_EQ(guess.text, "activation scale may be too small, 98 % of codes are the largest there is");
  EXPECT_FALSE(guess.fault);
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
  EXPECT_EQ(f.text.find("global activation scale may be too small, 9"), 0u) << f.text;
  EXPECT_NE(f.text.find(" % of block scales are the largest there is"), std::string::npos) << f.text;
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
