// SPDX-License-Identifier: Apache-2.0
// Constants in every type, right and with one planted fault: what is wrong is said, and nothing is said of a right one.
#include "verify/validate/validate_constants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

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
  std::string said() const {
    const auto bytes = [](const Buffer& b) { return b.size() > 0 ? const_cast<uint8_t*>(b.data()) : nullptr; };
    const TensorView t{
        .desc = &desc_, .data = bytes(array.codes), .scale = bytes(array.scale), .scale2 = bytes(array.scale2)};
    return misfit(t, {.what = "weight", .shape = {kRows, kCols}, .numbers = exact});
  }
  void expect_said(const std::string& words) const {
    EXPECT_NE(said().find(words), std::string::npos) << words << " is not in: " << said();
  }
  const QuantType& type() const { return type_; }

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

TEST(ValidateConstants, NothingIsSaidOfAWeightAsQuantized) {
  for (const char* type : kTypes) {
    for (uint64_t seed = 1; seed < 4; ++seed) {
      EXPECT_EQ(Weight(type, seed).said(), "") << type;
    }
  }
}

TEST(ValidateConstants, SwappedNibbles) {
  Weight w("e2m1:block16(e4m3):tensor(f32)");
  for (size_t i = 0; i < w.array.codes.size(); ++i) {
    uint8_t& b = w.array.codes.data()[i];
    b = static_cast<uint8_t>(b << 4 | b >> 4);
  }
  w.expect_said("the two codes of each byte are swapped");
}

TEST(ValidateConstants, TransposedScales) {
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

TEST(ValidateConstants, BlocksAlongTheOtherAxis) {
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

TEST(ValidateConstants, WrongGlobalScale) {
  for (const char* type : {"e2m1:block16(e4m3):tensor(f32)", "e2m1:block16(e4m3):tensor(f32):as(e4m3)"}) {
    Weight large(type), small(type);
    multiply(large.array.scale2, 6);
    large.expect_said("its scales are 6x too large");
    multiply(small.array.scale2, 0.5f);
    small.expect_said("its scales are 2x too small");
  }
}

TEST(ValidateConstants, IgnoredScale) {
  for (const char* type : {"e4m3:channel(f32)", "i8:channel(f32)"}) {
    Weight w(type);
    for (size_t i = 0; i < w.array.scale.size() / 4; ++i) {
      const float one = 1;
      std::memcpy(w.array.scale.data() + 4 * i, &one, 4);
    }
    w.expect_said("its stored weight is off by ");
  }
}

TEST(ValidateConstants, AnotherLayersWeight) {
  for (const char* type : kTypes) {
    Weight w(type), other(type, 8);
    w.exact = other.exact;
    w.expect_said("it is not this layer's weight");
  }
}

// One number of 15360 is enough, in every type: a code that is not the nearest, by one step where it is not a tie.
TEST(ValidateConstants, OneCodeThatIsNotTheNearest) {
  for (const char* type : kTypes) {
    Weight w(type);
    const ElementInfo& element = info(w.type().element);
    std::vector<float> codes(kRows * kCols);
    element.decode(w.array.codes.data(), 0, kRows * kCols, codes.data());
    const int64_t at = 40 * kCols + 17;
    float& c = codes[static_cast<size_t>(at)];
    c += static_cast<float>(c > 0 ? -step_at(w.type().element, c) : step_at(w.type().element, c));
    element.encode(codes.data(), kRows * kCols, w.array.codes.data(), 0);
    w.expect_said("weight [40,17] is stored as ");
    EXPECT_EQ(w.said().find("more"), std::string::npos) << w.said();
  }
}

// Codes that fit a scale which is not that of their numbers: each is the nearest, and the scale is wrong all the same.
TEST(ValidateConstants, AScaleThatIsNotThatOfItsNumbers) {
  Weight w("e4m3:channel(f32)");
  std::vector<float> numbers(w.exact.begin(), w.exact.end());
  float scale = 0;
  std::memcpy(&scale, w.array.scale.data() + 4 * 7, 4);
  for (const float factor : {2.0f, 0.25f}) {
    const float other = scale * factor;
    std::memcpy(w.array.scale.data() + 4 * 7, &other, 4);
    encode_scaled(w.type(), numbers.data(), kRows, kCols, w.array.scale.data(), nullptr, w.array.codes.data());
    w.expect_said("scale 7 of its weight is ");
  }
}

TEST(ValidateConstants, VectorsToTheirLastUnit) {
  for (const Element element : {Element::f32, Element::f16, Element::bf16}) {
    const ElementInfo& e = info(element);
    std::vector<double> numbers;
    for (int i = 0; i < 48; ++i) numbers.push_back(static_cast<float>(0.1 * (i + 1) / 7));
    const Operand desc = dense_operand({48}, element, true);
    Buffer codes(static_cast<size_t>(packed_bytes(element, 48)));
    const auto said = [&] {
      return misfit({.desc = &desc, .data = codes.data()}, {.what = "bias", .shape = {48}, .numbers = numbers});
    };
    e.encode_f64(numbers.data(), 48, codes.data(), 0);
    EXPECT_EQ(said(), "") << e.name;
    codes.data()[17 * e.bits / 8] ^= 1;
    EXPECT_EQ(said().find("bias 17 is stored as "), 0u) << said();
  }
}

TEST(ValidateConstants, RowsThatAreSwapped) {
  Weight w("f16");
  std::swap_ranges(w.array.codes.data() + 5 * kCols * 2, w.array.codes.data() + 6 * kCols * 2,
                   w.array.codes.data() + 9 * kCols * 2);
  EXPECT_EQ(w.said(), "rows 5 and 9 of its weight are swapped");
}

}  // namespace
}  // namespace tessera
