// SPDX-License-Identifier: Apache-2.0
// Narrow floats against a second implementation that knows no bit tricks: all codes as numbers, and a search for the
// nearest one in f64. ElementDump hands codes to tests/types_test.py, which compares them with a third one.
#include "types/element.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "types/bf16.h"
#include "types/bulk.h"
#include "types/e4m3.h"
#include "types/f16.h"

namespace tessera {
namespace {

// A format in words: exponent bits, fraction bits, whether the top exponent is Inf and NaN or (but for the last code)
// numbers.
struct Format {
  int exponent, fraction;
  bool ieee;
};

// The number that a code of the format stands for; NaN and Inf as such.
double number_of(const Format& f, uint32_t code) {
  const int bias = (1 << (f.exponent - 1)) - 1;
  const uint32_t fraction = code & ((1u << f.fraction) - 1), exponent = (code >> f.fraction) & ((1u << f.exponent) - 1);
  const double sign = (code >> (f.exponent + f.fraction)) & 1 ? -1 : 1;
  const bool top = exponent == (1u << f.exponent) - 1;
  if (top && f.ieee) return fraction == 0 ? sign * INFINITY : NAN;
  if (top && fraction == (1u << f.fraction) - 1) return NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - f.fraction);
  return sign * std::ldexp(fraction + (1u << f.fraction), static_cast<int>(exponent) - bias - f.fraction);
}

// Codes of the finite numbers from 0 up; their order is that of the numbers.
std::vector<double> positive_numbers(const Format& f) {
  std::vector<double> all;
  for (uint32_t code = 0;; ++code) {
    const double x = number_of(f, code);
    if (!std::isfinite(x)) return all;
    all.push_back(x);
  }
}

// Nearest, ties to the even code; beyond the largest number: the largest.
uint32_t nearest(const std::vector<double>& numbers, double magnitude) {
  const auto above = std::lower_bound(numbers.begin(), numbers.end(), magnitude);
  if (above == numbers.end()) return static_cast<uint32_t>(numbers.size()) - 1;
  const uint32_t high = static_cast<uint32_t>(above - numbers.begin());
  if (high == 0 || *above == magnitude) return high;
  const double up = *above - magnitude, down = magnitude - numbers[high - 1];
  if (up != down) return up < down ? high : high - 1;
  return high % 2 == 0 ? high : high - 1;
}

template <class E>
class NarrowFloat : public ::testing::Test {};
struct F16Case {
  using E = F16;
  static constexpr Element kElement = Element::f16;
  static constexpr Format kFormat{5, 10, true};
};
struct Bf16Case {
  using E = Bf16;
  static constexpr Element kElement = Element::bf16;
  static constexpr Format kFormat{8, 7, true};
};
struct E4m3Case {
  using E = E4m3;
  static constexpr Element kElement = Element::e4m3;
  static constexpr Format kFormat{4, 3, false};
};
using Cases = ::testing::Types<F16Case, Bf16Case, E4m3Case>;
TYPED_TEST_SUITE(NarrowFloat, Cases);

TYPED_TEST(NarrowFloat, AllCodesDecode) {
  using E = typename TypeParam::E;
  for (uint32_t code = 0; code < (1u << E::kBits); ++code) {
    const double want = number_of(TypeParam::kFormat, code);
    const float got = E::decode(static_cast<typename E::Storage>(code));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << code;
    } else {
      ASSERT_EQ(static_cast<double>(got), want) << code;
      ASSERT_EQ(std::signbit(got), (code >> (E::kBits - 1)) != 0) << code;
      if (std::isfinite(want)) {
        ASSERT_EQ(E::encode(got), code);
      }
    }
  }
}

TYPED_TEST(NarrowFloat, TiesAndTheirNeighboursEncode) {
  using E = typename TypeParam::E;
  const std::vector<double> numbers = positive_numbers(TypeParam::kFormat);
  ASSERT_EQ(numbers.back(), E::kMax);
  const auto check = [&](float x) {
    const uint32_t want =
        nearest(numbers, std::fabs(static_cast<double>(x))) | (std::signbit(x) ? 1u << (E::kBits - 1) : 0);
    ASSERT_EQ(E::encode(x), want) << x;
  };
  for (size_t i = 0; i + 1 < numbers.size(); ++i) {
    // Every middle between neighbours is a f32, but for bf16's lowest: those are covered by their neighbours.
    const float tie = static_cast<float>(numbers[i] + (numbers[i + 1] - numbers[i]) / 2);
    for (float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY), static_cast<float>(numbers[i])}) {
      check(x);
      check(-x);
    }
  }
}

TYPED_TEST(NarrowFloat, LimitsEncode) {
  using E = typename TypeParam::E;
  const float max = static_cast<float>(E::kMax);
  for (float x : {max, std::nextafter(max, INFINITY), std::numeric_limits<float>::max(), INFINITY}) {
    EXPECT_EQ(E::decode(E::encode(x)), max);
    EXPECT_EQ(E::decode(E::encode(-x)), -max);
  }
  EXPECT_FALSE(std::isfinite(E::decode(E::encode(INFINITY, /*saturate=*/false))));
  EXPECT_EQ(E::decode(E::encode(max, /*saturate=*/false)), max);
  EXPECT_TRUE(std::isnan(E::decode(E::encode(NAN))));
  EXPECT_EQ(E::encode(0.0f), 0);
  EXPECT_EQ(E::encode(-0.0f), 1u << (E::kBits - 1));
  EXPECT_EQ(E::encode(std::numeric_limits<float>::denorm_min()), 0);
}

TYPED_TEST(NarrowFloat, RandomNumbersEncodeToTheNearest) {
  using E = typename TypeParam::E;
  const std::vector<double> numbers = positive_numbers(TypeParam::kFormat);
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    const float x = float_of(static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    const uint32_t want =
        nearest(numbers, std::fabs(static_cast<double>(x))) | (std::signbit(x) ? 1u << (E::kBits - 1) : 0);
    ASSERT_EQ(E::encode(x), want) << x;
  }
}

// The branch-free conversions of arrays give the bits of the plain ones: every code, and floats of every exponent
// around every rounding.
TYPED_TEST(NarrowFloat, ArraysAreBitIdentical) {
  using E = typename TypeParam::E;
  using Code = typename E::Storage;
  std::vector<Code> codes(size_t{1} << E::kBits), back(1 << 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<Code>(i);
  std::vector<float> numbers(codes.size());
  info(TypeParam::kElement).decode(codes.data(), 0, static_cast<int64_t>(codes.size()), numbers.data());
  for (size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(bits_of(numbers[i]), bits_of(E::decode(codes[i]))) << i;
  std::vector<double> wide(codes.size());
  info(TypeParam::kElement).decode_f64(codes.data(), 0, static_cast<int64_t>(codes.size()), wide.data());
  for (size_t i = 0; i < codes.size(); ++i)
    ASSERT_TRUE(wide[i] == static_cast<double>(numbers[i]) || std::isnan(wide[i])) << i;

  std::vector<float> in(back.size());
  std::mt19937 random(3);
  for (uint32_t round = 0; round < 64; ++round) {
    // Each round: all 2^16 upper halves of a float, with a lower half that is zero, all ones, a single bit or random.
    for (size_t i = 0; i < in.size(); ++i) {
      const uint32_t low = round == 0   ? 0
                           : round == 1 ? 0xffff
                           : round < 18 ? 1u << (round - 2)
                                        : static_cast<uint32_t>(random()) & 0xffff;
      in[i] = float_of(static_cast<uint32_t>(i) << 16 | low);
    }
    info(TypeParam::kElement).encode(in.data(), static_cast<int64_t>(in.size()), back.data(), 0);
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(back[i], E::encode(in[i])) << in[i];
  }
}

TEST(Element, NamesFindTheirElement) {
  for (Element e : {Element::f32, Element::f16, Element::bf16, Element::e4m3, Element::f64, Element::i64, Element::i32,
                    Element::u8}) {
    EXPECT_EQ(find_element(info(e).name), e);
  }
  EXPECT_FALSE(find_element("fp8").has_value());
  EXPECT_EQ(packed_bytes(Element::f16, 3), 6);
}

TEST(Element, IntegersRoundAndSaturate) {
  const double in[] = {2.5, 3.5, -1, 300, 1e30, NAN};
  uint8_t u8[6];
  info(Element::u8).encode_f64(in, 6, u8, 0);
  EXPECT_EQ(std::vector<int>(u8, u8 + 6), (std::vector<int>{2, 4, 0, 255, 255, 0}));
  int64_t i64[6];
  info(Element::i64).encode_f64(in, 6, i64, 0);
  EXPECT_EQ(i64[2], -1);
  EXPECT_EQ(i64[4], std::numeric_limits<int64_t>::max());
}

TEST(Element, ConversionsStartAtAnyIndex) {
  uint16_t codes[4] = {};
  const float in[] = {1.5f, -2.0f};
  info(Element::f16).encode(in, 2, codes, 1);
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[3], 0);
  float out[2];
  info(Element::f16).decode(codes, 1, 2, out);
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], -2.0f);
}

TEST(Element, StepsAreDistancesBetweenCodes) {
  EXPECT_EQ(step_at(Element::f16, 1), 0x1p-10);
  EXPECT_EQ(step_at(Element::f16, 1.999), 0x1p-10);
  EXPECT_EQ(step_at(Element::f16, -2), 0x1p-9);
  EXPECT_EQ(step_at(Element::f16, 0), 0x1p-24);
  EXPECT_EQ(step_at(Element::f16, 1e9), 32);
  EXPECT_EQ(step_at(Element::e4m3, 448), 32);
  EXPECT_EQ(step_at(Element::e4m3, 0x1p-9), 0x1p-9);
  EXPECT_EQ(step_at(Element::bf16, 3), 0x1p-6);
  EXPECT_EQ(step_at(Element::i64, 12345), 1);
}

template <class T>
void write_all(const std::string& path, const std::vector<T>& values) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  ASSERT_TRUE(out.good()) << path;
}

// Into the folder that TESSERA_DUMP_TYPES names (else a temporary one): for each narrow float the numbers of all codes
// (<name>.decoded, f32) and the codes of the floats in inputs.f32 (<name>.codes).
TEST(ElementDump, WritesCodes) {
  const char* asked = std::getenv("TESSERA_DUMP_TYPES");
  const std::string folder = asked != nullptr ? std::string(asked) + "/" : ::testing::TempDir();
  std::vector<float> inputs = {0, 1, -448, 65504};
  if (asked != nullptr) {
    std::ifstream in(folder + "inputs.f32", std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
    ASSERT_FALSE(bytes.empty());
    inputs.resize(bytes.size() / sizeof(float));
    std::copy_n(bytes.data(), inputs.size() * sizeof(float), reinterpret_cast<char*>(inputs.data()));
  }
  for (Element e : {Element::f16, Element::bf16, Element::e4m3}) {
    const ElementInfo& element = info(e);
    std::vector<uint8_t> all(static_cast<size_t>(element.bits / 8) << element.bits),
        codes(inputs.size() * static_cast<size_t>(element.bits / 8));
    for (size_t i = 0; i < size_t{1} << element.bits; ++i) {
      for (size_t b = 0; b < static_cast<size_t>(element.bits / 8); ++b)
        all[i * static_cast<size_t>(element.bits / 8) + b] = static_cast<uint8_t>(i >> (8 * b));
    }
    std::vector<float> decoded(size_t{1} << element.bits);
    element.decode(all.data(), 0, static_cast<int64_t>(decoded.size()), decoded.data());
    element.encode(inputs.data(), static_cast<int64_t>(inputs.size()), codes.data(), 0);
    write_all(folder + element.name + ".decoded", decoded);
    write_all(folder + element.name + ".codes", codes);
  }
}

}  // namespace
}  // namespace tessera
