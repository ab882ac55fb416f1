// SPDX-License-Identifier: Apache-2.0
// Narrow elements against a second implementation that knows no bit tricks: all codes as numbers, and a search for the
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
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "types/bulk.h"
#include "types/codes.h"
#include "types/elements.h"

namespace tessera {
namespace {

// A format in words: exponent bits, fraction bits, and whether codes of the top exponent are Inf and NaN, numbers but
// for the last, which is NaN, or all numbers.
enum class Top { kInfAndNan, kOneNan, kNumbers };
struct Format {
  int exponent, fraction;
  Top top;
};

// The number that a code of the format stands for; NaN and Inf as such.
double number_of(const Format& f, uint32_t code) {
  const int bias = (1 << (f.exponent - 1)) - 1;
  const uint32_t fraction = code & ((1u << f.fraction) - 1), exponent = (code >> f.fraction) & ((1u << f.exponent) - 1);
  const double sign = (code >> (f.exponent + f.fraction)) & 1 ? -1 : 1;
  const bool top = exponent == (1u << f.exponent) - 1;
  if (top && f.top == Top::kInfAndNan) return fraction == 0 ? sign * INFINITY : NAN;
  if (top && f.top == Top::kOneNan && fraction == (1u << f.fraction) - 1) return NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - f.fraction);
  return sign * std::ldexp(fraction + (1u << f.fraction), static_cast<int>(exponent) - bias - f.fraction);
}

// Codes of the finite numbers from 0 up; their order is that of the numbers.
std::vector<double> positive_numbers(const Format& f) {
  std::vector<double> all;
  for (uint32_t code = 0; code < 1u << (f.exponent + f.fraction); ++code) {
    const double x = number_of(f, code);
    if (!std::isfinite(x)) break;
    all.push_back(x);
  }
  return all;
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

template <int kExp, int kMan, SmallFloatForm kForm>
constexpr Top top_of(SmallFloat<kExp, kMan, kForm>) {
  return kForm == SmallFloatForm::kIeee ? Top::kInfAndNan : kForm == SmallFloatForm::kFn ? Top::kOneNan : Top::kNumbers;
}
// Sizes by the element's name (`e4m3`: 4 and 3), so that a struct that is not what its name says is found.
template <class E>
constexpr Format format_of(std::string_view name) {
  if constexpr (BinaryFloat<E>) {
    constexpr Top kTop = top_of(typename E::Bits());
    if (name == "f16") return {5, 10, kTop};
    if (name == "bf16") return {8, 7, kTop};
    return {name[1] - '0', name[3] - '0', kTop};
  }
  return {};
}

// Every binary float of the list; f32 and f64 are the machine's own, e8m0 has a test of its own.
#define TS_ELEMENT(name, Struct)                                \
  struct Case_##name {                                          \
    using E = Struct;                                           \
    static constexpr Format kFormat = format_of<Struct>(#name); \
  };
#include "types/types.inc"
#undef TS_ELEMENT
template <class Case>
using IfBinaryFloat = std::conditional_t<BinaryFloat<typename Case::E>, std::tuple<Case>, std::tuple<>>;
template <class... List>
::testing::Types<List...> as_types(std::tuple<List...>);
using Cases = decltype(as_types(std::tuple_cat(
#define TS_ELEMENT(name, Struct) IfBinaryFloat<Case_##name>(),
#include "types/types.inc"
#undef TS_ELEMENT
    std::tuple<>())));
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
  EXPECT_EQ(E::decode(E::encode(max, /*saturate=*/false)), max);
  if (TypeParam::kFormat.top == Top::kNumbers) {
    EXPECT_EQ(E::decode(E::encode(INFINITY, /*saturate=*/false)), max);
    EXPECT_EQ(E::decode(E::encode(NAN)), 0);
  } else {
    EXPECT_FALSE(std::isfinite(E::decode(E::encode(INFINITY, /*saturate=*/false))));
    EXPECT_TRUE(std::isnan(E::decode(E::encode(NAN))));
  }
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

// Without saturation what would round beyond the largest number, were there numbers, becomes Inf or NaN.
TYPED_TEST(NarrowFloat, OverflowWithoutSaturation) {
  using E = typename TypeParam::E;
  const std::vector<double> numbers = positive_numbers(TypeParam::kFormat);
  const double max = numbers.back(), step = max - numbers[numbers.size() - 2];
  const bool even = numbers.size() % 2 != 0;  // the largest code; the next would be odd and a tie falls to the largest
  const float tie = static_cast<float>(max + step / 2);
  const auto overflows = [&](float x) {
    for (float y : {x, -x}) {
      const float got = E::decode(E::encode(y, /*saturate=*/false));
      if (TypeParam::kFormat.top == Top::kNumbers) {
        EXPECT_EQ(got, std::copysign(static_cast<float>(max), y));
      } else if (TypeParam::kFormat.top == Top::kOneNan) {
        EXPECT_TRUE(std::isnan(got)) << y;
      } else {
        EXPECT_EQ(got, std::copysign(INFINITY, y)) << y;
      }
    }
  };
  for (float x : {std::nextafter(tie, INFINITY), std::numeric_limits<float>::max(), INFINITY}) overflows(x);
  if (even) {
    EXPECT_EQ(E::decode(E::encode(tie, /*saturate=*/false)), max);
  } else {
    overflows(tie);
  }
  EXPECT_EQ(E::decode(E::encode(std::nextafter(tie, 0.0f), /*saturate=*/false)), max);
  EXPECT_EQ(E::decode(E::encode(-std::nextafter(tie, 0.0f), /*saturate=*/false)), -max);
}

// Nearest power of two, the middle upwards; what lies between 2^-127 and 2^-126 always upwards.
uint32_t power_code(float x, bool saturate) {
  if (!(x > 0)) return 0xff;
  if (std::isinf(x)) return saturate ? 0xfe : 0xff;
  if (x <= 0x1p-127f) return 0;
  if (x < 0x1p-126f) return 1;
  const int below = std::ilogb(x);
  const int code = below + 127 + (static_cast<double>(x) >= 1.5 * std::ldexp(1.0, below) ? 1 : 0);
  return code > 0xfe ? (saturate ? 0xfe : 0xff) : static_cast<uint32_t>(code);
}

TEST(E8m0, AllPowersMiddlesAndNeighbours) {
  for (int code = 0; code < 255; ++code) {
    const float x = static_cast<float>(std::ldexp(1.0, code - 127));
    ASSERT_EQ(E8m0::decode(static_cast<uint8_t>(code)), x);
    for (float y : {x, x * 1.5f, x * 1.25f, x * 1.75f}) {
      for (float z : {y, std::nextafter(y, 0.0f), std::nextafter(y, INFINITY)}) {
        ASSERT_EQ(E8m0::encode(z), power_code(z, true)) << z;
        ASSERT_EQ(E8m0::encode(z, false), power_code(z, false)) << z;
        ASSERT_EQ(E8m0::encode(-z), 0xff) << z;
      }
    }
  }
  EXPECT_TRUE(std::isnan(E8m0::decode(0xff)));
  for (float x : {0.0f, -0.0f, -INFINITY, NAN, -NAN}) EXPECT_EQ(E8m0::encode(x), 0xff);
  EXPECT_EQ(E8m0::encode(INFINITY), 0xfe);
  EXPECT_EQ(E8m0::encode(INFINITY, false), 0xff);
}

template <class E>
void check_small_integer() {
  const int low = -(1 << (E::kBits - 1)), high = -low - 1;
  for (int code = 0; code < 1 << E::kBits; ++code) {
    const int want = code > high ? code - (1 << E::kBits) : code;
    ASSERT_EQ(E::decode(static_cast<uint8_t>(code)), want);
  }
  const auto check = [&](float x) {
    const double want = std::isnan(x) ? 0 : std::clamp(std::nearbyint(static_cast<double>(x)), 1.0 * low, 1.0 * high);
    ASSERT_EQ(E::decode(E::encode(x)), want) << x;
    ASSERT_EQ(E::decode(E::encode(static_cast<double>(x))), want) << x;
    ASSERT_LT(E::encode(x), 1 << E::kBits);
  };
  for (int i = 4 * low; i <= 4 * high; ++i) {
    for (float x : {static_cast<float>(i) / 2, std::nextafter(static_cast<float>(i) / 2, INFINITY),
                    std::nextafter(static_cast<float>(i) / 2, -INFINITY)}) {
      check(x);
    }
  }
  for (float x : {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 1e-45f}) check(x);
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) check(float_of(static_cast<uint32_t>(random())));
  EXPECT_EQ(E::decode(E::encode(2.5 + 0x1p-40)), 3);
}
TEST(SmallInteger, RoundsAndSaturates) {
  check_small_integer<I8>();
  check_small_integer<I4>();
}

TEST(Element, NamesFindTheirElement) {
#define TS_ELEMENT(name, Struct) EXPECT_EQ(find_element(#name), Element::name);
#include "types/types.inc"
#undef TS_ELEMENT
  EXPECT_FALSE(find_element("fp8").has_value());
  EXPECT_EQ(packed_bytes(Element::f16, 3), 6);
  EXPECT_EQ(packed_bytes(Element::e2m1, 3), 2);
  EXPECT_EQ(info(Element::e8m0).kind, ElementKind::kFloat);
  EXPECT_EQ(info(Element::i4).kind, ElementKind::kInteger);
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
  EXPECT_EQ(step_at(Element::e2m1, 5), 2);
  EXPECT_EQ(step_at(Element::e2m1, 0.1), 0.5);
  EXPECT_EQ(step_at(Element::e8m0, 5), 4);
  EXPECT_EQ(step_at(Element::i4, 5), 1);
}

template <class T>
void write_all(const std::string& path, const std::vector<T>& values) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  ASSERT_TRUE(out.good()) << path;
}

// Into the folder that TESSERA_DUMP_TYPES names (else a temporary one), for each narrow element: the numbers of all
// codes
// (<name>.decoded, f32) and the packed codes of the floats in inputs.f32, saturating (<name>.codes) and not
// (<name>.unsaturated).
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
  const auto count = static_cast<int64_t>(inputs.size());
  constexpr Element kAll[] = {
#define TS_ELEMENT(name, Struct) Element::name,
#include "types/types.inc"
#undef TS_ELEMENT
  };
  for (Element e : kAll) {
    const ElementInfo& element = info(e);
    if (element.bits > 16) continue;
    const int64_t all = int64_t{1} << element.bits;
    std::vector<uint8_t> every(static_cast<size_t>(packed_bytes(e, all)));
    for (int64_t i = 0; i < all; ++i) set_code(every.data(), element.bits, i, static_cast<uint64_t>(i));
    std::vector<float> decoded(static_cast<size_t>(all));
    element.decode(every.data(), 0, all, decoded.data());
    write_all(folder + element.name + ".decoded", decoded);
    std::vector<uint8_t> codes(static_cast<size_t>(packed_bytes(e, count)), 0xa5);
    element.encode(inputs.data(), count, codes.data(), 0);
    write_all(folder + element.name + ".codes", codes);
    codes.assign(codes.size(), 0xa5);
    element.encode_unsaturated(inputs.data(), count, codes.data(), 0);
    write_all(folder + element.name + ".unsaturated", codes);
  }
}

}  // namespace
}  // namespace tessera
