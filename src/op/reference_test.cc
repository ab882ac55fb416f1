// SPDX-License-Identifier: Apache-2.0
// The golden executor itself: decoding and encoding of every form of tensor, the product that references share, shape
// rules, noise.
#include "op/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "base/buffer.h"
#include "base/parallel.h"
#include "op/errors.h"
#include "op/extra_results.h"
#include "op/f64_product.h"
#include "ops/ops.h"
#include "tiles/cuda/device_types.h"
#include "types/e4m3.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

TEST(Decode, FollowsStrides) {
  float stored[12];
  for (int i = 0; i < 12; ++i) stored[i] = static_cast<float>(i);
  Operand o = dense_operand({3, 4}, Element::f32);
  o.shape = {4, 2}, o.strides = {1, 8};  // columns of the first and last row
  EXPECT_EQ(decode({.desc = &o, .data = stored}).v, (std::vector<double>{0, 8, 1, 9, 2, 10, 3, 11}));
  o.shape = {2, 3}, o.strides = {0, 2};  // a repeated row of every other element
  EXPECT_EQ(decode({.desc = &o, .data = stored}).v, (std::vector<double>{0, 2, 4, 0, 2, 4}));
}

TEST(Decode, AppliesBothLevelsOfScales) {
  const QuantType type = *parse_quant_type("e4m3:block2(e4m3):tensor(f32)");
  const Operand o = dense_operand({2, 3}, type);
  const auto code = [](float x) { return E4m3::encode(x); };
  uint8_t codes[] = {code(1), code(2), code(3), code(4), code(5), code(6)};
  uint8_t blocks[] = {code(1), code(2), code(4), code(8)};  // two per row: columns 0-1 and 2
  float whole = 0.5f;
  EXPECT_EQ(decode({.desc = &o, .data = codes, .scale = blocks, .scale2 = &whole}).v,
            (std::vector<double>{0.5, 1, 3, 8, 10, 24}));
}

TEST(Decode, RoundsProductsWhereTheTypeSaysSo) {
  const Operand o = dense_operand({1, 4}, *parse_quant_type("e2m1:block2(e4m3):tensor(f32):as(e4m3)"));
  uint8_t codes[] = {0x57, 0x72};  // 6, 3 | 1, 6
  uint8_t blocks[] = {E4m3::encode(1.125f), E4m3::encode(11)};
  float whole = 0.5f;
  // 6.75, 3.375 (a tie of e4m3: to 3.5 or 3.25), 11, 66 (between 64 and 72)
  EXPECT_EQ(decode({.desc = &o, .data = codes, .scale = blocks, .scale2 = &whole}).v,
            (std::vector<double>{3.5, 1.75, 5.5, 32}));
}

TEST(Reference, MakesCodesOfEveryTypeButWeights) {
  Problem p{.op = "copy", .in = {dense_operand({2, 3}, Element::f32)}, .out = {dense_operand({2, 3}, Element::e2m1)}};
  const Variant* v = reference_variant(*find_op("copy"));
  for (const char* type : {"e2m1", "e5m2", "i8:tensor(f32)", "e4m3:token(f32)!", "e4m3:block32(e8m0)!",
                           "e2m1:block16(e4m3):tensor(f32)!"}) {
    p.out[0] = dense_operand({2, 3}, *parse_quant_type(type));
    EXPECT_TRUE(v->accepts(p)) << type << ": " << v->accepts(p).refusal;
  }
  for (const char* type : {"e2m1:block16(e4m3):tensor(f32):as(e4m3)", "e4m3:tensor(i8)"}) {
    p.out[0] = dense_operand({2, 3}, *parse_quant_type(type));
    EXPECT_FALSE(v->accepts(p)) << type;
  }
}

const char* const kScaledTypes[] = {"e4m3:tensor(f32)",
                                    "i8:tensor(f32)",
                                    "e4m3:tensor(f32)!",
                                    "e4m3:token(f32)!",
                                    "i8:token(f32)!",
                                    "e4m3:block32(e8m0)!",
                                    "e4m3:block32(e8m0,floor)!",
                                    "e2m1:block16(e4m3):tensor(f32)!",
                                    "e2m1:block16(e4m3):tensor(f32)",
                                    "e5m2:block7(f32)!"};

// Numbers with the magnitudes side by side that scales must follow; the first row is zero.
Dense spread_numbers(const Shape& shape, uint32_t seed) {
  Dense d{shape, std::vector<double>(static_cast<size_t>(elements(shape)))};
  std::mt19937 random(seed);
  std::normal_distribution<double> draw;
  for (size_t i = 0; i < d.v.size(); ++i)
    d.v[i] =
        static_cast<int64_t>(i) < shape.back() ? 0 : std::ldexp(draw(random), static_cast<int>(random() % 20) - 12);
  return d;
}

struct Stored {
  Buffer codes, scale, scale2;
  Stored(const QuantType& type, int64_t rows, int64_t cols, int64_t span)
      : codes(static_cast<size_t>(packed_bytes(type.element, span))),
        scale(static_cast<size_t>(packed_bytes(type.scale.element, scale_count(type.scale, rows, cols)))),
        scale2(static_cast<size_t>(packed_bytes(type.scale2.element, scale_count(type.scale2, rows, cols)))) {
    for (Buffer* b : {&codes, &scale, &scale2}) std::memset(b->data(), 0xff, b->size());
    const float one = 0.013f;  // static scales
    if (!type.dynamic && type.scale2.granularity == Granularity::kNone) {
      for (size_t i = 0; i < scale.size(); i += sizeof(one)) std::memcpy(scale.data() + i, &one, sizeof(one));
    } else if (!type.dynamic) {
      std::memset(scale.data(), 0x39, scale.size());
    }
    if (scale2.size() > 0) std::memcpy(scale2.data(), &one, sizeof(one));
  }
  TensorView view(const Operand& o) {
    return {.desc = &o, .data = codes.data(), .scale = scale.data(), .scale2 = scale2.data()};
  }
  bool operator==(const Stored& b) const {
    return std::ranges::equal(std::span(codes.data(), codes.size()), std::span(b.codes.data(), b.codes.size())) &&
           std::ranges::equal(std::span(scale.data(), scale.size()), std::span(b.scale.data(), b.scale.size()));
  }
};

// encode is quantize_array's rule, whatever the shape, the number of threads and the leading axes.
TEST(Encode, FollowsTheRuleOfTheType) {
  for (const char* text : kScaledTypes) {
    const QuantType type = *parse_quant_type(text);
    for (const int64_t cols : {1, 15, 16, 17, 32, 33, 197, 2100}) {
      const int64_t rows = 21;
      const Dense numbers = spread_numbers({rows, cols}, static_cast<uint32_t>(cols));
      const std::vector<float> x(numbers.v.begin(), numbers.v.end());
      Stored want(type, rows, cols, rows * cols);
      if (type.dynamic) {
        quantize_under(type, x.data(), rows, cols, want.scale2.data(), want.scale.data(), want.codes.data());
      } else {
        encode_scaled(type, x.data(), rows, cols, want.scale.data(), want.scale2.data(), want.codes.data());
      }
      for (int used : {1, 3}) {
        set_threads(used);
        const Operand flat = dense_operand({rows, cols}, type), folded = dense_operand({3, 7, cols}, type);
        for (const Operand* o : {&flat, &folded}) {
          Stored got(type, rows, cols, rows * cols);
          encode({o->shape, numbers.v}, got.view(*o));
          EXPECT_TRUE(got == want) << text << " " << to_string(o->shape) << " on " << used << " threads";
          // And decode gives back what the codes stand for, dequantize_array's product but for its roundings.
          std::vector<float> back(x.size());
          dequantize_array(type, want.codes.data(), want.scale.data(), want.scale2.data(), rows, cols, back.data());
          const Dense decoded = decode(got.view(*o));
          for (size_t i = 0; i < back.size(); ++i)
            ASSERT_NEAR(decoded.v[i], static_cast<double>(back[i]), 0x1p-23 * std::fabs(decoded.v[i])) << text;
        }
      }
    }
  }
  set_threads(0);
}

// Strided results hold the codes of dense ones, and nothing between them changes.
TEST(Encode, SpreadsCodesOverStrides) {
  for (const char* text : kScaledTypes) {
    const QuantType type = *parse_quant_type(text);
    const int64_t rows = 5, cols = 19, wide = 23;
    const Dense numbers = spread_numbers({rows, cols}, 3);
    Operand gapped = dense_operand({rows, cols}, type);
    const Operand dense = gapped;
    gapped.strides = {wide, 1};
    Stored a(type, rows, cols, rows * cols), b(type, rows, cols, rows * wide);
    encode(numbers, a.view(dense));
    encode(numbers, b.view(gapped));
    EXPECT_EQ(decode(a.view(dense)).v, decode(b.view(gapped)).v) << text;
    const int64_t bits = info(type.element).bits;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = cols; c < wide; ++c) {
        const int64_t at = (r * wide + c) * bits;
        EXPECT_EQ(b.codes.data()[at / 8] >> at % 8 & ((1 << bits) - 1), (1 << bits) - 1) << text;
      }
    }
  }
}

// A scale over a NaN is NaN, and a block of zeros has a scale all the same.
TEST(Encode, DynamicScalesOfZerosAndNans) {
  const QuantType type = kMxfp8;
  QuantType dynamic = type;
  dynamic.dynamic = true;
  const Operand o = dense_operand({3, 32}, dynamic);
  Dense numbers{o.shape, std::vector<double>(96, 0.0)};
  numbers.v[40] = NAN;
  for (size_t i = 64; i < 96; ++i) numbers.v[i] = 448;
  Stored got(dynamic, 3, 32, 96);
  encode(numbers, got.view(o));
  EXPECT_EQ(got.scale.data()[0], 0);
  EXPECT_EQ(got.scale.data()[1], 0xff);
  EXPECT_EQ(got.scale.data()[2], 127);
  const Dense back = decode(got.view(o));
  EXPECT_EQ(back.v[0], 0);
  EXPECT_TRUE(std::isnan(back.v[40]));
  EXPECT_EQ(back.v[95], 448);
}

// A kernel that was not written for an element may not read it as another of the same width.
TEST(DeviceTypes, NewElementsAreRefused) {
  for (Element e : {Element::e5m2, Element::e8m0, Element::e2m1, Element::i8, Element::i4}) {
    EXPECT_FALSE(is_device_type(e)) << info(e).name;
    EXPECT_FALSE(is_device_plain(e)) << info(e).name;
  }
  for (Element e : {Element::f32, Element::f16, Element::bf16, Element::e4m3, Element::f64, Element::i64, Element::i32,
                    Element::u8})
    EXPECT_TRUE(is_device_type(e)) << info(e).name;
}

TEST(Encode, WritesOnlyItsElements) {
  Operand o = dense_operand({2, 2}, Element::f32);
  o.strides = {3, 1};
  float y[6] = {9, 9, 9, 9, 9, 9};
  encode({{2, 2}, {1, 2, 3, 4}}, {.desc = &o, .data = y});
  EXPECT_EQ(std::vector<float>(y, y + 6), (std::vector<float>{1, 2, 9, 3, 4, 9}));
}

TEST(Encode, DividesByTheScaleOfEachRow) {
  const Operand o = dense_operand({2, 2}, kE4m3PerChannel);
  float scales[] = {0.5f, 2};
  uint8_t codes[4];
  const TensorView t{.desc = &o, .data = codes, .scale = scales};
  encode({{2, 2}, {1, -8, 1, -8}}, t);
  EXPECT_EQ(codes[0], E4m3::encode(2));
  EXPECT_EQ(codes[2], E4m3::encode(0.5f));
  EXPECT_EQ(decode(t).v, (std::vector<double>{1, -8, 1, -8}));
}

TEST(F64Product, IsTheSumInOrderOnAnyNumberOfThreads) {
  std::mt19937 random(1);
  std::normal_distribution<double> draw;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                {3, 5, 7},
                                {4, 4, 512},
                                {65, 67, 513},
                                {5, 300, 1030},
                                {130, 9, 40},
                                {3, 2, 0}}) {
    std::vector<double> x(static_cast<size_t>(m * k)), w(static_cast<size_t>(n * k)), want(static_cast<size_t>(m * n));
    for (double& v : x) v = draw(random);
    for (double& v : w) v = draw(random);
    for (int64_t i = 0; i < m * n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j)
        sum += x[static_cast<size_t>(i / n * k + j)] * w[static_cast<size_t>(i % n * k + j)];
      want[static_cast<size_t>(i)] = sum;
    }
    for (int used : {1, 3}) {
      set_threads(used);
      std::vector<double> y(want.size(), NAN);
      f64_product(x.data(), w.data(), y.data(), m, n, k);
      EXPECT_EQ(y, want) << m << " " << n << " " << k << " on " << used;
    }
  }
  set_threads(0);
}

TEST(Ops, EveryOpHasItsParts) {
  for (const OpInfo* op : all_ops()) {
    EXPECT_NE(op->reference, nullptr) << op->name;
    EXPECT_NE(op->flops, nullptr) << op->name;
    EXPECT_EQ(find_op(op->name), op);
    const Variant* reference = reference_variant(*op);
    ASSERT_NE(reference, nullptr);
    EXPECT_EQ(find_variant(reference->name), reference);
    EXPECT_EQ(reference->arch, Arch::ref);
    bool on_cpu = false;
    for (const Variant* v : op->variants) {
      EXPECT_TRUE(std::string(v->name).starts_with(std::string(op->name) + "/")) << v->name;
      on_cpu |= v->arch == Arch::cpu;
    }
    EXPECT_TRUE(on_cpu) << op->name;
  }
  EXPECT_EQ(find_op("convolve"), nullptr);
  EXPECT_EQ(find_variant("matmul/abacus"), nullptr);
  EXPECT_EQ(find_variant("abacus"), nullptr);
}

TEST(Signature, NamedDimensionsMustAgree) {
  static const OpInfo kOp{.name = "op", .signature = "x[...,m,k], w[n,k], b[n]?, r[...,m,n]? -> y[...,m,n], s[...]"};
  const auto infer = [](std::vector<Shape> shapes) {
    Problem p;
    for (const Shape& s : shapes) p.in.push_back(s == Shape{-1} ? Operand{} : dense_operand(s, Element::bf16));
    return infer_types(kOp, p);
  };
  const auto good = infer({{2, 3, 4, 5}, {6, 5}, {6}, {2, 3, 4, 6}});
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ((*good)[0], (Type{{2, 3, 4, 6}, Element::bf16}));
  EXPECT_EQ((*good)[1].shape, Shape({2, 3}));
  EXPECT_TRUE(infer({{4, 5}, {6, 5}, {-1}, {4, 6}}).ok());
  EXPECT_FALSE(infer({{4, 5}, {6, 7}}).ok());                     // k
  EXPECT_FALSE(infer({{4, 5}, {6, 5}, {7}}).ok());                // n
  EXPECT_FALSE(infer({{2, 4, 5}, {6, 5}, {6}, {3, 4, 6}}).ok());  // the leading axes
  EXPECT_FALSE(infer({{5}, {6, 5}}).ok());                        // too few axes
  EXPECT_FALSE(infer({{4, 5}, {1, 6, 5}}).ok());                  // too many
  EXPECT_FALSE(infer({{4, 5}}).ok());                             // w is missing
  EXPECT_NE(infer({{4, 5}, {6, 7}}).status().message().find("k is 5"), std::string::npos);
}

TEST(Terms, WhatIsSummedAndWhatIsExact) {
  const QuantType scaled = *parse_quant_type("e4m3:tensor(f32)");
  const auto terms = [](const char* op, const std::vector<Operand>& in, const Operand& out, const char* fn = "") {
    Problem p{.op = op, .in = in, .out = {out}};
    if (*fn != '\0') p.attrs.set("fn", std::string(fn));
    return terms_of(*find_op(op), p);
  };
  const Operand x = dense_operand({4, 96}, Element::f32), w = dense_operand({7, 96}, Element::f32),
                y = dense_operand({4, 7}, Element::f32), codes = dense_operand({4, 96}, scaled);
  EXPECT_EQ(terms("matmul", {x, w}, y), 96);
  EXPECT_EQ(terms("norm", {x}, x), 96);
  EXPECT_EQ(terms("softmax", {x}, x), 96);
  EXPECT_EQ(terms("reduce", {x}, dense_operand({4}, Element::f32), "sum"), 96);
  EXPECT_EQ(terms("reduce", {x}, dense_operand({4}, Element::f32), "max"), 0);
  EXPECT_EQ(terms("map", {x, x}, x, "add"), 1);
  EXPECT_EQ(terms("map", {x}, x, "relu"), 0);
  EXPECT_EQ(terms("copy", {x}, x), 0);
  EXPECT_EQ(terms("copy", {codes}, x), 1);  // the product with the scale
  EXPECT_EQ(terms("copy", {x}, codes), 1);  // the quotient by it
  EXPECT_EQ(terms("concat", {x, x}, dense_operand({8, 96}, Element::f32)), 0);
  EXPECT_EQ(terms("gather", {w, dense_operand({3}, Element::i32)}, dense_operand({3, 96}, Element::f32)), 0);
  const Operand q = dense_operand({1, 5, 2, 64}, Element::f16), k = dense_operand({1, 9, 2, 64}, Element::f16);
  EXPECT_EQ(terms("attention", {q, k, k}, q), 64 + 9);
  const Operand angles = dense_operand({1, 5, 32}, Element::f32);
  EXPECT_EQ(terms("rotary", {q, angles, angles}, q), 2);
}

TEST(Allow, AScaledIntegerIsHalfAStepFromTheExactNumber) {
  const QuantType type = *parse_quant_type("i8:tensor(f32)");
  std::mt19937 random(7);
  std::uniform_real_distribution<double> wide(-200, 200);
  for (double scale : {0.037, 1.0, 900.0}) {
    for (int i = 0; i < 2000; ++i) {
      const double code = wide(random), exact = code * scale;
      const Operand o = dense_operand({1}, type);
      int8_t stored = 99;
      float s = static_cast<float>(scale);
      const TensorView t{.desc = &o, .data = &stored, .scale = &s};
      encode({{1}, {exact}}, t);
      const AllowedResult a = allow(type, static_cast<double>(s), exact, 0);
      const auto off = [&](double n) { return std::fabs(n * static_cast<double>(s) - a.want); };
      const double tolerance = a.error + a.rounding;
      EXPECT_LE(off(stored), tolerance) << exact;
      // The next codes are wrong, but for a number that lies between two of them.
      if (std::fabs(code - stored) > 0.49 && std::fabs(code - stored) < 0.51) continue;
      EXPECT_GT(off(stored + 1), tolerance) << exact;
      EXPECT_GT(off(stored - 1), tolerance) << exact;
    }
  }
}

// A made scale counts as it is where errors could have given it; any other is judged under the nearest that they could.
TEST(JudgedScales, FollowTheLargestNumberAndItsError) {
  const QuantType type = *parse_quant_type("e4m3:block32(e8m0)!");
  const Operand o = dense_operand({4, 32}, type);
  Dense exact{o.shape, std::vector<double>(128, 0.5)};
  exact.v[0] = 448 * (1 - 1e-4);   // scale 1, or 2 with an error of 1e-3
  exact.v[32] = 448 * (1 + 1e-4);  // scale 2, or 1
  exact.v[64] = NAN;
  for (size_t i = 96; i < 128; ++i) exact.v[i] = 0;
  const auto judged = [&](uint8_t code, double relative) {
    uint8_t codes[128] = {}, scales[4] = {code, code, code, code};
    const TensorView t{.desc = &o, .data = codes, .scale = scales};
    Errors e(128);
    for (size_t i = 0; i < 128; ++i) e[i] = relative * std::fabs(exact.v[i]);
    const JudgedScales s(t, exact, e);
    return std::vector<double>{s.at(0), s.at(32), s.at(64), s.at(96)};
  };
  const auto expect = [](const std::vector<double>& got, double a, double b) {
    EXPECT_EQ(got[0], a);
    EXPECT_EQ(got[1], b);
    EXPECT_TRUE(std::isnan(got[2]));
    EXPECT_EQ(got[3], 0x1p-127);  // the scale of zeros
  };
  expect(judged(127, 0), 1, 2);
  expect(judged(128, 0), 1, 2);
  expect(judged(127, 1e-3), 1, 1);
  expect(judged(128, 1e-3), 2, 2);
  expect(judged(135, 1e-3), 2, 2);  // 256 is too large for any of them
  expect(judged(120, 1e-3), 1, 1);  // and 2^-7 too small
  expect(judged(255, 1e-3), 2, 2);  // NaN where there is none
}

TEST(CheckProblem, RefusesWhatAFileMightSay) {
  const OpInfo& op = *find_op("copy");
  Problem p{.op = "copy", .in = {dense_operand({2, 3}, Element::f32)}, .out = {dense_operand({2, 3}, Element::f32)}};
  EXPECT_TRUE(check_problem(op, p).ok());
  Problem other = p;
  other.out[0] = dense_operand({2, 4}, Element::f32);
  EXPECT_FALSE(check_problem(op, other).ok());
  other = p;
  other.in[0].strides = {1};
  EXPECT_FALSE(check_problem(op, other).ok());
  other = p;
  other.in[0].shape = {-2, 3};
  EXPECT_FALSE(check_problem(op, other).ok());
  other = p;
  other.then.steps.push_back({.kind = StepKind::quantize});
  EXPECT_FALSE(check_problem(op, other).ok());  // copy runs no program
  other = p;
  other.out.clear();
  EXPECT_FALSE(check_problem(op, other).ok());
}

TEST(ExtraResults, FollowTheAttributes) {
  EXPECT_EQ(ExtraResults::of({}).codes, 0);
  EXPECT_EQ(ExtraResults::of({{kMomentsResult, int64_t{1}}}).moments, 1);
  const ExtraResults both = ExtraResults::of({{kMomentsResult, int64_t{1}}, {kCodesResult, int64_t{1}}});
  EXPECT_EQ(both.codes, 1);
  EXPECT_EQ(both.moments, 2);
}

}  // namespace
}  // namespace tessera
