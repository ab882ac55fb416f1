// SPDX-License-Identifier: Apache-2.0
// Quantizers: hand-made cases of each rule, and that all roads to the same codes agree. QuantizeDump hands arrays to
// tests/types_test.py, which compares them with a second implementation.
#include "types/quantize_array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "types/codes.h"

namespace tessera {
namespace {

QuantType type_of(const char* text) {
  const auto type = parse_quant_type(text);
  EXPECT_TRUE(type.has_value()) << text;
  return type.value_or(QuantType());
}

std::vector<float> numbers_of(Element e, const Buffer& codes, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  info(e).decode(codes.data(), 0, n, out.data());
  return out;
}

QuantizedArray quantized(const QuantType& type, const std::vector<float>& x, int64_t rows = 1) {
  auto q = quantize_array(type, x.data(), rows, static_cast<int64_t>(x.size()) / rows);
  EXPECT_TRUE(q.ok()) << q.status().message();
  return q.ok() ? std::move(*q) : QuantizedArray{};
}

std::vector<float> normal(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = draw(random);
  return x;
}

TEST(QuantizeArray, Fp8PerTensor) {
  const QuantizedArray q = quantized(kE4m3PerTensor, {1.1f, -2.1f, 4.48f, 0, -0.0f, 0.005f});
  const float s = 4.48f / 448;
  EXPECT_EQ(numbers_of(Element::f32, q.scale, 1)[0], s);
  EXPECT_EQ(numbers_of(Element::e4m3, q.codes, 6), (std::vector<float>{112, -208, 448, 0, 0, 0.5f}));
  EXPECT_EQ(q.codes.data()[4], 0x80) << "a cast keeps the sign of zero";
  EXPECT_EQ(q.scale2.size(), 0u);
}

TEST(QuantizeArray, IntegersAreSymmetric) {
  const QuantizedArray q = quantized(type_of("i8:channel(f32)"), {127, -127, 0.5f, 1.5f, 0, 0, 0, 0}, 2);
  EXPECT_EQ(numbers_of(Element::f32, q.scale, 2), (std::vector<float>{1, 1}));
  EXPECT_EQ(numbers_of(Element::i8, q.codes, 8), (std::vector<float>{127, -127, 0, 2, 0, 0, 0, 0}));
  const QuantizedArray h = quantized(type_of("i4:token(f32)"), {-7, 7, 3.5f, 2.5f, -0.6f}, 1);
  EXPECT_EQ(numbers_of(Element::i4, h.codes, 5), (std::vector<float>{-7, 7, 4, 2, -1}));
  const float static_scale = 1;
  const std::vector<float> beyond = {-200, 200};
  uint8_t codes[2];
  encode_scaled(type_of("i8:tensor(f32)"), beyond.data(), 1, 2, &static_scale, nullptr, codes);
  EXPECT_EQ(static_cast<int8_t>(codes[0]), -127);
  EXPECT_EQ(static_cast<int8_t>(codes[1]), 127);
}

TEST(QuantizeArray, PowerRulesByName) {
  const auto code = [](PowerRule rule, float amax) { return static_cast<int>(power_scale(rule, amax, 448)) - 127; };
  // amax:        448  449  256  511  512  1.75*512  1
  const float amax[] = {448, 449, 256, 511, 512, 896, 1};
  const int rceil[] = {0, 1, 0, 1, 1, 1, -8}, floor[] = {0, 0, 0, 0, 1, 1, -8}, ceil[] = {1, 1, 0, 1, 1, 2, -8},
            even[] = {1, 1, 0, 1, 1, 2, -8};
  for (size_t i = 0; i < std::size(amax); ++i) {
    EXPECT_EQ(code(PowerRule::kRceil, amax[i]), rceil[i]) << amax[i];
    EXPECT_EQ(code(PowerRule::kFloor, amax[i]), floor[i]) << amax[i];
    EXPECT_EQ(code(PowerRule::kCeil, amax[i]), ceil[i]) << amax[i];
    EXPECT_EQ(code(PowerRule::kEven, amax[i]), even[i]) << amax[i];
  }
  EXPECT_EQ(code(PowerRule::kEven, std::nextafter(448.0f, 0.0f)), 0) << "just below 1.75 * 2^8";
  for (PowerRule r : {PowerRule::kRceil, PowerRule::kFloor, PowerRule::kCeil, PowerRule::kEven}) {
    EXPECT_EQ(power_scale(r, 0, 448), 0);
    EXPECT_EQ(power_scale(r, 1e-45f, 448), 0);
    EXPECT_EQ(power_scale(r, INFINITY, 448), 0xfe);
    EXPECT_EQ(power_scale(r, NAN, 448), 0xff);
  }
}

TEST(QuantizeArray, Mxfp8Block) {
  std::vector<float> x(64, 0.0f);
  x[0] = 448, x[1] = -0.0f, x[2] = -1, x[33] = -0.0f;
  const QuantizedArray q = quantized(kMxfp8, x);
  EXPECT_EQ(q.scale.data()[0], 127);
  EXPECT_EQ(q.scale.data()[1], 0) << "a block of zeros";
  EXPECT_EQ(q.codes.data()[0], 0x7e);
  EXPECT_EQ(q.codes.data()[1], 0) << "-0 becomes +0";
  EXPECT_EQ(q.codes.data()[33], 0);
  EXPECT_EQ(q.codes.data()[2], 0xb8);
}

TEST(QuantizeArray, Nvfp4Block) {
  std::vector<float> x(32, 0.0f);
  x[0] = 2688, x[1] = -224, x[2] = -0.0f, x[3] = -1e-3f;
  const QuantizedArray q = quantized(kNvfp4, x);
  EXPECT_EQ(numbers_of(Element::f32, q.scale2, 1)[0], 1);
  EXPECT_EQ(numbers_of(Element::e4m3, q.scale, 2), (std::vector<float>{448, 1}));
  EXPECT_EQ(q.codes.data()[0], 0x97) << "6 in the low nibble, -0.5 in the high one";
  EXPECT_EQ(q.codes.data()[1], 0x80) << "-0 becomes +0, a small negative number keeps its sign";
  // The block scale is clamped below: 1e-9 of the largest would round to zero.
  x[16] = 2.688e-6f;
  EXPECT_EQ(numbers_of(Element::e4m3, quantized(kNvfp4, x).scale, 2)[1], 0x1p-9f);
}

TEST(QuantizeArray, W4a8LeavesRoomForTheProduct) {
  std::vector<float> x = normal(16 * 64, 4);
  const QuantizedArray q = quantized(kNvfp4AsE4m3, x);
  const auto amax =
      std::fabs(*std::max_element(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
  EXPECT_EQ(numbers_of(Element::f32, q.scale2, 1)[0], amax / 448);
  const auto n = static_cast<int64_t>(x.size());
  std::vector<uint8_t> products(x.size());
  encode_products(kNvfp4AsE4m3, q.codes.data(), q.scale.data(), 1, n, products.data());
  std::vector<float> entered(x.size()), back(x.size());
  info(Element::e4m3).decode(products.data(), 0, n, entered.data());
  dequantize_array(kNvfp4AsE4m3, q.codes.data(), q.scale.data(), q.scale2.data(), 1, n, back.data());
  const std::vector<float> codes = numbers_of(Element::e2m1, q.codes, n),
                           scales = numbers_of(Element::e4m3, q.scale, n / 16);
  for (size_t i = 0; i < x.size(); ++i) {
    const float exact = codes[i] * scales[i / 16];
    ASSERT_LE(std::fabs(exact), 448);
    ASSERT_LE(std::fabs(entered[i] - exact), step_at(Element::e4m3, exact) / 2);
    ASSERT_EQ(back[i], entered[i] * (amax / 448));
  }
}

TEST(QuantizeArray, NanShowsInItsScaleOnly) {
  std::vector<float> x = normal(96, 5);
  x[40] = NAN;
  for (const QuantType& type : {kMxfp8, kNvfp4}) {
    const QuantizedArray q = quantized(type, x);
    std::vector<float> back(x.size());
    dequantize_array(type, q.codes.data(), q.scale.data(), q.scale2.data(), 1, 96, back.data());
    for (int i = 0; i < 96; ++i)
      ASSERT_EQ(std::isnan(back[static_cast<size_t>(i)]), i / type.scale.block == 40 / type.scale.block)
          << to_string(type) << i;
  }
  for (const char* text : {"e4m3:tensor(f32)", "i8:tensor(f32)", "i4:tensor(f16)"}) {
    const QuantType type = type_of(text);
    EXPECT_TRUE(std::isnan(numbers_of(type.scale.element, quantized(type, x).scale, 1)[0])) << text;
  }
}

TEST(QuantizeArray, ZerosHaveTheScaleOne) {
  const std::vector<float> x(40, 0.0f);
  for (const char* text :
       {"e4m3:tensor(f32)", "e5m2:channel(f32)", "i8:token(f32)", "i4:block7(f16)", "e2m1:block16(e4m3):tensor(f32)"}) {
    const QuantType type = type_of(text);
    const QuantizedArray q = quantized(type, x, 2);
    for (float s : numbers_of(type.scale.element, q.scale, scale_count(type.scale, 2, 20))) EXPECT_EQ(s, 1) << text;
    for (size_t i = 0; i < q.codes.size(); ++i) EXPECT_EQ(q.codes.data()[i], 0) << text;
  }
}

// Scales made alone, then codes under them; a given second level; and each number taken by itself, all give the same
// bits.
TEST(QuantizeArray, AllRoadsAgree) {
  for (const char* text :
       {"e4m3:tensor(f32)", "e4m3:channel(f32)", "e5m2:token(f16)", "i8:block3(f32)", "i4:block32(bf16)",
        "e4m3:block32(e8m0)", "e2m1:block32(e8m0,floor)", "e2m1:block16(e4m3):tensor(f32)",
        "i4:channel(f16):tensor(f32)", "f16", "e2m1:block5000(f32)"}) {
    const QuantType type = type_of(text);
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1},
                                     {3, 17},
                                     {5, 33},
                                     {2, 48},
                                     {1, 2049},
                                     {2, 6001},
                                     {7, 31},
                                     {0, 5},
                                     {4, 0}}) {
      const std::vector<float> x = normal(rows * cols, 6);
      const auto whole = quantize_array(type, x.data(), rows, cols);
      ASSERT_TRUE(whole.ok());
      Buffer scale(whole->scale.size()), codes(whole->codes.size());
      std::memset(scale.data(), 0xa5, scale.size());
      std::memset(codes.data(), 0xa5, codes.size());
      make_scales(type, x.data(), rows, cols, whole->scale2.data(), scale.data());
      encode_scaled(type, x.data(), rows, cols, scale.data(), whole->scale2.data(), codes.data());
      ASSERT_EQ(std::memcmp(scale.data(), whole->scale.data(), scale.size()), 0) << text << rows << "x" << cols;
      const int64_t n = rows * cols, used = packed_bytes(type.element, n);
      std::vector<float> back(x.size());
      dequantize_array(type, codes.data(), scale.data(), whole->scale2.data(), rows, cols, back.data());
      const std::vector<float> decoded = numbers_of(type.element, codes, n),
                               s = numbers_of(type.scale.element, scale, scale_count(type.scale, rows, cols)),
                               s2 =
                                   numbers_of(type.scale2.element, whole->scale2, scale_count(type.scale2, rows, cols));
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(code_at(codes.data(), info(type.element).bits, i),
                  code_at(whole->codes.data(), info(type.element).bits, i))
            << text << i;
        float want = decoded[static_cast<size_t>(i)];
        if (type.scaled()) want *= s[static_cast<size_t>(scale_index(type.scale, i / cols, i % cols, cols))];
        if (!s2.empty()) want *= s2[0];
        ASSERT_EQ(back[static_cast<size_t>(i)], want) << text << i;
      }
      ASSERT_EQ(static_cast<size_t>(used), codes.size());
    }
  }
}

TEST(QuantizeArray, OtherTypesAreRefused) {
  const float x = 1;
  for (const char* text :
       {"e8m0", "e4m3:tensor(i8)", "e4m3:block16(e2m1)", "e4m3:block16(e4m3):channel(f32)",
        "e4m3:block16(e4m3):tensor(e8m0)", "e4m3:block32(e8m0):tensor(f32)", "e4m3:tensor(f32):tensor(f32)"}) {
    const auto q = quantize_array(type_of(text), &x, 1, 1);
    ASSERT_FALSE(q.ok()) << text;
    EXPECT_NE(q.status().message().find(text), std::string::npos) << q.status().message();
  }
}

void write_bytes(const std::string& path, const void* data, size_t bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  ASSERT_TRUE(out.good()) << path;
}

// In the folder that TESSERA_DUMP_TYPES names: for each line `case type rows cols` of quantize.txt the array <case>.f32
// is read, and <case>.codes, .scale, .scale2, .back (f32) and, where the type has them, .products are written.
TEST(QuantizeDump, WritesArrays) {
  const char* asked = std::getenv("TESSERA_DUMP_TYPES");
  if (asked == nullptr) GTEST_SKIP() << "tests/types_test.py names the folder";
  const std::string folder = std::string(asked) + "/";
  std::ifstream list(folder + "quantize.txt");
  std::string name, text;
  int64_t rows = 0, cols = 0;
  int cases = 0;
  while (list >> name >> text >> rows >> cols) {
    ++cases;
    const QuantType type = type_of(text.c_str());
    std::ifstream in(folder + name + ".f32", std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
    ASSERT_EQ(bytes.size(), static_cast<size_t>(rows * cols) * sizeof(float)) << name;
    std::vector<float> x(static_cast<size_t>(rows * cols)), back(x.size());
    if (!bytes.empty()) std::memcpy(x.data(), bytes.data(), bytes.size());
    const auto q = quantize_array(type, x.data(), rows, cols);
    ASSERT_TRUE(q.ok()) << q.status().message();
    dequantize_array(type, q->codes.data(), q->scale.data(), q->scale2.data(), rows, cols, back.data());
    write_bytes(folder + name + ".codes", q->codes.data(), q->codes.size());
    write_bytes(folder + name + ".scale", q->scale.data(), q->scale.size());
    write_bytes(folder + name + ".scale2", q->scale2.data(), q->scale2.size());
    write_bytes(folder + name + ".back", back.data(), back.size() * sizeof(float));
    if (type.product) {
      std::vector<uint8_t> products(static_cast<size_t>(packed_bytes(*type.product, rows * cols)));
      encode_products(type, q->codes.data(), q->scale.data(), rows, cols, products.data());
      write_bytes(folder + name + ".products", products.data(), products.size());
    }
  }
  ASSERT_GT(cases, 0);
}

}  // namespace
}  // namespace tessera
