// SPDX-License-Identifier: Apache-2.0
// The vector functions against the C library in f64, over every exponent of f32 and many fractions; and the vector
// codes against the elements' own encode and decode, over every code and every tie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "steps/scalar.h"
#include "tiles/cpu/rows.h"

namespace tessera {
namespace {

constexpr double kU = 0x1p-24;      // one rounding to f32, relative
constexpr double kTiny = 0x1p-149;  // the smallest subnormal
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Every sign and exponent of the finite f32 numbers with 2000 fractions each, and a fine grid where the functions bend.
const std::vector<float>& arguments() {
  static const std::vector<float> kAll = [] {
    std::vector<float> all = {0.0f, -0.0f};
    std::mt19937 random(7);
    for (uint32_t top = 0; top < 512; ++top) {
      if ((top & 255) == 255) continue;
      for (uint32_t i = 0; i < 2000; ++i)
        all.push_back(float_of(top << 23 | (i < 2 ? i * 0x7fffff : random() & 0x7fffff)));
    }
    for (int i = -1'200'000; i <= 1'200'000; ++i) all.push_back(static_cast<float>(i) * 1e-4f);
    return all;
  }();
  return kAll;
}

std::vector<float> mapped(Unary fn, const std::vector<float>& x) {
  std::vector<float> y(x.size(), kNan);
  map_row(fn, x.data(), y.data(), static_cast<int64_t>(x.size()));
  return y;
}

// Worst |got - exact| / allowed(x, exact), which must not exceed 1.
void expect_within(Unary fn, const std::function<double(double)>& exact,
                   const std::function<double(double, double)>& allowed) {
  const std::vector<float>& x = arguments();
  const std::vector<float> y = mapped(fn, x);
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(x[i]);
    if (std::fabs(want) > std::numeric_limits<float>::max()) {
      ASSERT_TRUE(std::isinf(y[i]) || std::fabs(y[i]) > 0.9999f * std::numeric_limits<float>::max())
          << name_of(fn) << "(" << x[i] << ") = " << y[i];
      continue;
    }
    const double share =
        std::fabs(y[i] - want) / (allowed(x[i], want) + kTiny * std::max(1.0, std::fabs(static_cast<double>(x[i]))));
    if (!(share <= worst)) worst = share, at = x[i];
  }
  EXPECT_LE(worst, 1.0) << name_of(fn) << " at " << at << ": share of the bound";
}
std::function<double(double, double)> relative(double units) {
  return [units](double, double want) { return units * kU * std::fabs(want); };
}

double exact_gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double tanh_argument(double x) { return std::sqrt(8 / M_PI) * (x + 0.044715 * x * x * x); }

TEST(CpuMath, Exp) {
  expect_within(
      Unary::exp, [](double x) { return std::exp(x); }, relative(3));
}
TEST(CpuMath, Erf) {
  expect_within(
      Unary::erf, [](double x) { return std::erf(x); }, relative(2.5));
}
TEST(CpuMath, Tanh) {
  expect_within(
      Unary::tanh, [](double x) { return std::tanh(x); }, relative(4));
}
TEST(CpuMath, Sigmoid) {
  expect_within(
      Unary::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, relative(6));
}
TEST(CpuMath, Silu) {
  expect_within(
      Unary::silu, [](double x) { return x / (1 + std::exp(-x)); }, relative(6));
}
TEST(CpuMath, GeluQuick) {
  // The product 1.702 x is rounded (its constant too) before the exponential.
  const auto allowed = [](double x, double want) { return (6 + 2 * std::fabs(1.702 * x)) * kU * std::fabs(want); };
  expect_within(
      Unary::gelu_quick, [](double x) { return x / (1 + std::exp(-1.702 * x)); }, allowed);
}
TEST(CpuMath, GeluErf) {
  const auto allowed = [](double x, double want) {
    return kU * (std::fabs(x) < 1 ? 8 * std::fabs(want) : 3 * std::fabs(want) + 2 * std::fabs(x));
  };
  expect_within(Unary::gelu_erf, exact_gelu_erf, allowed);
}
TEST(CpuMath, GeluTanh) {
  const auto allowed = [](double x, double want) {
    return (6 + 4 * std::fabs(tanh_argument(x))) * kU * std::fabs(want);
  };
  expect_within(
      Unary::gelu_tanh, [](double x) { return x / (1 + std::exp(-tanh_argument(x))); }, allowed);
}
TEST(CpuMath, RoundedOnce) {  // what the processor does itself: half a unit
  for (Unary fn : {Unary::sqrt, Unary::reciprocal}) {
    const std::vector<float>& x = arguments();
    const std::vector<float> y = mapped(fn, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const float want = apply_unary(fn, x[i]);
      ASSERT_TRUE(y[i] == want || (std::isnan(y[i]) && std::isnan(want)))
          << name_of(fn) << "(" << x[i] << ") = " << y[i];
    }
  }
}

TEST(CpuMath, ExactFunctionsEqualScalarOnes) {
  for (Unary fn : {Unary::identity, Unary::neg, Unary::abs, Unary::relu, Unary::floor, Unary::ceil, Unary::round,
                   Unary::logical_not}) {
    const std::vector<float>& x = arguments();
    const std::vector<float> y = mapped(fn, x);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], apply_unary(fn, x[i])) << name_of(fn) << "(" << x[i] << ")";
  }
}

TEST(CpuMath, EdgesAndEveryLength) {
  const std::vector<float> edges = {kNan, kInf, -kInf, 0.0f, -0.0f, 88.73f, -104.0f, 1e30f, -1e30f};
  for (Unary fn : {Unary::exp, Unary::erf, Unary::tanh, Unary::sigmoid, Unary::gelu_erf, Unary::gelu_tanh, Unary::silu,
                   Unary::relu}) {
    EXPECT_TRUE(std::isnan(mapped(fn, edges)[0])) << name_of(fn) << " of NaN";
  }
  EXPECT_EQ(mapped(Unary::exp, edges)[1], kInf);
  EXPECT_EQ(mapped(Unary::exp, edges)[2], 0.0f);
  EXPECT_EQ(mapped(Unary::exp, edges)[5], kInf);
  EXPECT_EQ(mapped(Unary::exp, edges)[6], 0.0f);
  EXPECT_EQ(mapped(Unary::erf, edges)[1], 1.0f);
  EXPECT_EQ(mapped(Unary::erf, edges)[2], -1.0f);
  EXPECT_EQ(mapped(Unary::gelu_erf, edges)[7], 1e30f);
  // No length reads or writes beyond its end, and each element gets the same result wherever it stands.
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 3);
  for (int64_t n = 0; n <= 70; ++n) {
    std::vector<float> x(static_cast<size_t>(n)), y(static_cast<size_t>(n) + 1, -7.0f);
    for (float& v : x) v = normal(random);
    map_row(Unary::gelu_erf, x.data(), y.data(), n);
    EXPECT_EQ(y.back(), -7.0f);
    for (int64_t i = 0; i < n; ++i) {
      float alone = 0;
      map_row(Unary::gelu_erf, &x[static_cast<size_t>(i)], &alone, 1);
      EXPECT_EQ(y[static_cast<size_t>(i)], alone) << i << " of " << n;
    }
  }
}

// All codes of the element, decoded in one row and at every offset of a short one.
void expect_decodes(Element e) {
  const int64_t count = std::max<int64_t>(256, int64_t{1} << info(e).bits);  // 4 bits: every byte
  const int64_t codes_per_byte = info(e).bits < 8 ? 2 : 1, bytes = std::max(1, info(e).bits / 8);
  std::vector<uint8_t> codes(static_cast<size_t>(count / codes_per_byte * bytes));
  for (int64_t i = 0; i < count / codes_per_byte; ++i)
    std::memcpy(codes.data() + i * bytes, &i, static_cast<size_t>(bytes));
  std::vector<float> got(static_cast<size_t>(count), -7.0f), want(got.size()), piece(13);
  info(e).decode(codes.data(), 0, count, want.data());
  const auto same = [](float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); };
  decode_row(e, codes.data(), 0, count, got.data());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(same(got[i], want[i])) << info(e).name << " code " << i << ": " << got[i] << ", not " << want[i];
  for (int64_t first = 0; first + 13 <= count; first += 13) {
    decode_row(e, codes.data(), first, 13, piece.data());
    for (size_t i = 0; i < 13; ++i)
      ASSERT_TRUE(same(piece[i], want[static_cast<size_t>(first) + i]))
          << info(e).name << " code " << first + static_cast<int64_t>(i);
  }
}
TEST(CpuCodes, DecodeEveryCode) {
  for (Element e : {Element::f16, Element::bf16, Element::e4m3, Element::i8, Element::e5m2, Element::e2m1, Element::i4})
    expect_decodes(e);
}

// Every code's number, the tie to its neighbour, the f32 numbers beside both; then random bits, infinities and NaN.
TEST(CpuCodes, EncodeAsTheElementsDo) {
  for (Element e : {Element::f16, Element::bf16, Element::e4m3, Element::i8, Element::e5m2}) {
    const int bytes = info(e).bits / 8;
    const int64_t count = int64_t{1} << info(e).bits;
    std::vector<float> x = {kInf, -kInf, kNan, std::numeric_limits<float>::max(), 0x1p-149f, -0x1p-149f, 0x1p-126f};
    for (int64_t code = 0; code + 1 < count; ++code) {
      float pair[2];
      const uint64_t next = static_cast<uint64_t>(code) + 1;
      info(e).decode(&code, 0, 1, pair);
      info(e).decode(&next, 0, 1, pair + 1);
      const float middle = static_cast<float>((static_cast<double>(pair[0]) + pair[1]) / 2);
      for (float v : {pair[0], middle}) {
        for (float beside : {v, std::nextafter(v, kInf), std::nextafter(v, -kInf)}) x.push_back(beside);
      }
    }
    std::mt19937 random(5);
    for (int i = 0; i < 200'000; ++i) x.push_back(float_of(static_cast<uint32_t>(random())));
    const int64_t n = static_cast<int64_t>(x.size());
    std::vector<uint8_t> got(static_cast<size_t>(n * bytes), 0xa5), want(got);
    encode_row(e, x.data(), n, 1.0f, got.data(), 0);
    info(e).encode(x.data(), n, want.data(), 0);
    std::vector<float> back(x.size());
    info(e).decode(got.data(), 0, n, back.data());
    for (int64_t i = 0; i < n; ++i) {
      const float v = x[static_cast<size_t>(i)];
      if (std::isnan(v) && info(e).kind == ElementKind::kFloat) {
        ASSERT_TRUE(std::isnan(back[static_cast<size_t>(i)])) << info(e).name;
        continue;
      }
      ASSERT_EQ(std::memcmp(got.data() + i * bytes, want.data() + i * bytes, static_cast<size_t>(bytes)), 0)
          << info(e).name << " of " << v << " (bits " << std::hex << bits_of(v) << ")";
    }
  }
}

// Codes of 4 bits: ranges that begin and end inside a byte leave their neighbours alone.
TEST(CpuCodes, EncodeHalfBytes) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 3);
  for (Element e : {Element::e2m1, Element::i4}) {
    for (int64_t n : {0, 1, 2, 3, 15, 16, 17, 31, 64, 65, 255, 256, 257, 600}) {
      for (int64_t first : {0, 1, 2, 3}) {
        std::vector<float> x(static_cast<size_t>(n)), doubled(x.size());
        for (size_t i = 0; i < x.size(); ++i) {
          x[i] = i % 40 == 7 ? kNan : i % 40 == 8 ? kInf : i % 40 == 9 ? -0.0f : normal(random);
          doubled[i] = 2 * x[i];
        }
        std::vector<uint8_t> got(static_cast<size_t>(n / 2 + 4), 0xa5), want = got;
        encode_row(e, x.data(), n, 2.0f, got.data(), first);
        info(e).encode(doubled.data(), n, want.data(), first);
        ASSERT_EQ(got, want) << info(e).name << " " << n << " from " << first;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
