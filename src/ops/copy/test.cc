// SPDX-License-Identifier: Apache-2.0
#include "ops/copy/copy.h"

#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("copy"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16, kE4m3 = Element::e4m3,
                kI64 = Element::i64, kI32 = Element::i32, kU8 = Element::u8;

Problem problem(Operand x, std::optional<QuantType> y = {}) { return make_problem("copy", {std::move(x)}, {}, {}, y); }

// Types of activations: codes under one static scale, or under scales of rows and blocks that the copy makes.
std::vector<QuantType> coded_types() {
  std::vector<QuantType> types;
  for (const char* text : {"i8:tensor(f32)", "e2m1:tensor(f32)", "e4m3:token(f32)!", "i8:token(f32)!",
                           "e4m3:block32(e8m0)!", "e4m3:block32(e8m0,floor)!", "e2m1:block16(e4m3):tensor(f32)!"})
    types.push_back(*parse_quant_type(text));
  return types;
}

// To codes, from codes, and from codes to others. Rows of one number, and around multiples of both blocks; odd ones end
// inside a byte of 4-bit codes.
std::vector<Problem> coded_problems() {
  std::vector<Problem> all;
  const Shape shapes[] = {{}, {1}, {0, 3}, {3, 0}, {5, 1}, {4, 15}, {3, 16}, {3, 17}, {2, 3, 33}, {7, 197}, {2, 1100}};
  for (const QuantType& t : coded_types()) {
    for (const Shape& s : shapes) {
      for (const QuantType& carrier : {kF32, kF16, kBf16}) {
        all.push_back(problem(dense_operand(s, carrier), t));
        all.push_back(problem(dense_operand(s, t), carrier));
      }
      all.push_back(problem(dense_operand(s, kE4m3PerTensor), t));
      for (const QuantType& other : coded_types()) all.push_back(problem(dense_operand(s, t), other));
    }
    all.push_back(problem(swapped({6, 35}, kF16, 0, 1), t));
    all.push_back(problem(swapped({2, 17, 3, 16}, kF32, 1, 2), t));
    all.push_back(problem(gapped({4, 3, 20}, kF16, 12), t));
  }
  for (const char* text : {"e4m3:block32(e8m0)", "e2m1:block16(e4m3):tensor(f32)", "i8:channel(f32)",
                           "e2m1:block16(e4m3):tensor(f32):as(e4m3)"})
    all.push_back(problem(dense_operand({5, 50}, *parse_quant_type(text)), kF32));  // weights
  return all;
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  const QuantType numbers[] = {kF32, kF16, kBf16, kE4m3, kE4m3PerTensor, kInt8PerTensor};
  for (const QuantType& x : numbers) {
    for (const QuantType& y : numbers) {
      for (const Shape& s :
           {Shape{}, Shape{1}, Shape{0, 3}, Shape{7}, Shape{3, 5}, Shape{2, 3, 64}, Shape{513}, Shape{5, 1025}})
        all.push_back(problem(dense_operand(s, x), y));
      all.push_back(problem(swapped({6, 35}, x, 0, 1), y));
      all.push_back(problem(swapped({2, 17, 3, 16}, x, 1, 2), y));
      all.push_back(problem(swapped({3, 33, 40}, x, 1, 2), y));
      all.push_back(problem(gapped({4, 3, 20}, x, 12), y));
    }
  }
  for (const QuantType& t : {kI64, kI32, kU8}) {
    all.push_back(problem(dense_operand({3, 7}, t)));
    all.push_back(problem(swapped({3, 7}, t, 0, 1)));
    all.push_back(problem(dense_operand({3, 7}, t), kF32));
    all.push_back(problem(dense_operand({3, 7}, kF32), t));
    all.push_back(problem(dense_operand({3, 7}, kInt8PerTensor), t));
  }
  all.push_back(problem(dense_operand({65}, kI64), kI32));
  for (const Problem& p : coded_problems()) all.push_back(p);
  return all;
}

class CopyVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values);
  }
};

TEST_P(CopyVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(CopyVariant, AgreesOnZeros) { run(problems(), Values::kZeros); }
TEST_P(CopyVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }

// Patches of an image: [b, c, gy, py, gx, px] -> [b, gy, gx, c, py, px].
Operand patches(int64_t batch, int64_t grid, int64_t patch, const QuantType& type) {
  Operand o = dense_operand({batch, grid, grid, 3, patch, patch}, type);
  const int64_t line = grid * patch, plane = line * line;
  o.strides = {3 * plane, patch * line, patch, plane, line, 1};
  return o;
}
// Tubes of a film: [b, c, gt, pt, gy, py, gx, px] -> [b, gt, gy, gx, c, pt, py, px], of which no neighbours merge.
Operand tubes(int64_t batch, int64_t frames, int64_t grid, int64_t patch, const QuantType& type) {
  Operand o = dense_operand({batch, frames, grid, grid, 3, 2, patch, patch}, type);
  const int64_t line = grid * patch, plane = line * line, film = frames * 2 * plane;
  o.strides = {3 * film, 2 * plane, patch * line, patch, film, plane, line, 1};
  return o;
}
TEST_P(CopyVariant, AgreesOnMoreAxesThanKernelsWalk) {
  run({problem(tubes(2, 4, 3, 8, kF32), kF16), problem(tubes(1, 2, 3, 4, kF16)), problem(tubes(3, 2, 3, 5, kF32)),
       problem(tubes(2, 2, 2, 8, kF32), kE4m3PerTensor), problem(tubes(2, 2, 2, 8, kF32), kInt8PerTensor)},
      Values::kRandom);
}
TEST_P(CopyVariant, AgreesOnRealShapes) {
  run({problem(patches(2, 14, 16, kF32), kF16), problem(patches(1, 14, 16, kF32), kE4m3PerTensor),
       problem(patches(1, 14, 16, kF32), kInt8PerTensor), problem(swapped({2, 12, 197, 64}, kF16, 1, 2)),
       problem(swapped({2, 768, 196}, kF32, 1, 2), kF16)},
      Values::kRandom);
}
// Rows that a block holds in registers, in up to eight pieces, and longer ones; more of them than blocks run at once.
TEST_P(CopyVariant, AgreesOnTokens) {
  std::vector<Problem> list;
  for (const Shape& s :
       {Shape{197, 768}, {3, 1024}, {3, 1032}, {2, 5, 3072}, {3, 4304}, {2, 8192}, {2, 8200}, {2, 20000}}) {
    for (const QuantType& x : {kF16, kBf16, kF32}) list.push_back(problem(dense_operand(s, x), kE4m3PerToken));
    list.push_back(problem(gapped(s, kF16, 8), kE4m3PerToken));
    list.push_back(problem(gapped(s, kF16, 3), kE4m3PerToken));
  }
  list.push_back(problem(dense_operand({9001, 64}, kF16), kE4m3PerToken));
  run(list, Values::kRandom);
  run(list, Values::kExtremes);
}
// Rows whose scale is subnormal, so that its inverse is no number of f32; one whose scale would be 0, and one of zeros.
TEST_P(CopyVariant, AgreesOnTheSmallestTokens) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  const auto tiny = [](const Problem& p, size_t, std::vector<double>& v) {
    const auto cols = static_cast<size_t>(p.in[0].shape.back());
    for (size_t i = 0; i < v.size(); ++i) {
      const int row = static_cast<int>(i / cols), exponent = row == 0 ? -145 : -149 + 8 * row;
      v[i] = row == 1 ? 0 : std::ldexp(static_cast<double>(i % 7) - 3, exponent);
    }
  };
  for (const QuantType& x : {kF32, kBf16}) {
    check_variant(*GetParam(), problem(dense_operand({9, 40}, x), kE4m3PerToken), 1, Values::kRandom, tiny);
    check_variant(*GetParam(), problem(dense_operand({9, 33}, x), kE4m3PerToken), 2, Values::kRandom, tiny);
  }
}
TEST_P(CopyVariant, Sanitize) {
  run({problem(patches(1, 2, 8, kF32), kF16), problem(swapped({3, 33, 40}, kF16, 1, 2)),
       problem(dense_operand({513}, kF32), kE4m3PerTensor), problem(dense_operand({77}, kF16)),
       problem(dense_operand({3, 40}, kF16), kInt8PerTensor), problem(dense_operand({41}, kInt8PerTensor), kF16)},
      Values::kRandom);
}
INSTANTIATE_TEST_SUITE_P(Variants, CopyVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(CopyContract, TheCpuTakesEveryCodedType) {
  for (const Problem& p : coded_problems()) EXPECT_EQ(find_variant("copy/cpu")->accepts(p).refusal, "");
  const auto refusal = [](const char* y) {
    return find_variant("copy/cpu")->accepts(problem(dense_operand({3, 8}, kF32), *parse_quant_type(y))).refusal;
  };
  EXPECT_NE(refusal("e4m3:tensor(f32)!").find("covers all of them"), std::string::npos);  // its rows go to threads
  EXPECT_NE(refusal("e2m1:block16(e4m3):tensor(f32):as(e4m3)"), "");
  EXPECT_NE(refusal("e4m3:channel(f32)"), "");
}

// Kernels that know other types refuse these instead of reading a part of them. The GPU has codes with one static
// scale.
TEST(CopyContract, TheGpuTakesOneScaleAndRefusesTheRest) {
  const auto known = [](const QuantType& t) {
    return t == kF32 || t == kF16 || t == kBf16 || t == kE4m3PerTensor || t == kInt8PerTensor;
  };
  int taken = 0;
  for (const Problem& p : coded_problems()) {
    const bool takes = known(p.in[0].type) && known(p.out[0].type);
    EXPECT_EQ(find_variant("copy/cuda")->accepts(p).refusal.empty(), takes)
        << to_string(p.in[0].type) << to_string(p.out[0].type);
    taken += takes;
  }
  EXPECT_GT(taken, 50);
  EXPECT_NE(find_variant("copy/cuda")->accepts(problem(dense_operand({8}, Element::i8), kF32)).refusal, "");
}

TEST(CopyContract, TheGpuMakesScalesOfRows) {
  const auto refusal = [](const Operand& x, const QuantType& y) {
    return find_variant("copy/cuda_tokens")->accepts(problem(x, y)).refusal;
  };
  for (const QuantType& x : {kF32, kF16, kBf16}) {
    EXPECT_EQ(refusal(dense_operand({3, 17}, x), kE4m3PerToken), "");
    EXPECT_EQ(refusal(gapped({2, 3, 40}, x, 5), kE4m3PerToken), "");
  }
  EXPECT_NE(refusal(dense_operand({3, 16}, kF16), kE4m3PerTensor), "");
  EXPECT_NE(refusal(dense_operand({3, 16}, kE4m3PerTensor), kE4m3PerToken), "");
  EXPECT_NE(refusal(swapped({3, 16}, kF16, 0, 1), kE4m3PerToken).find("rows"), std::string::npos);
}

// The same numbers in f32 on both sides: the codes and scales are those of the reference, bit for bit.
TEST(CopyCodes, AreTheReferencesOwn) {
  for (const QuantType& type : coded_types()) {
    for (int64_t cols : {1, 15, 17, 33, 197, 768}) {
      for (const Values values : {Values::kRandom, Values::kZeros, Values::kExtremes}) {
        const Case c = make_case(problem(dense_operand({5, cols}, kF32), type), 3, values, [](auto&, size_t, auto& v) {
          if (v.size() > 100) v[90] = NAN, v[v.size() - 1] = 1e30;
        });
        const auto got = run_on(*find_variant("copy/cpu"), c), want = run_on(*reference_variant(op()), c);
        ASSERT_TRUE(got.ok() && want.ok());
        const auto same = [](const Buffer& a, const Buffer& b) {
          return std::equal(a.data(), a.data() + a.size(), b.data(), b.data() + b.size());
        };
        EXPECT_TRUE(same((*got)[0].scale, (*want)[0].scale)) << c.text();
        EXPECT_TRUE(same((*got)[0].data, (*want)[0].data)) << c.text();
      }
    }
  }
}

TEST(CopyContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(CopyRule, TheElementMayBeNamed) {
  Problem p{.op = "copy", .in = {dense_operand({2, 3}, kF32)}, .out = {}, .attrs = {}};
  EXPECT_EQ((*infer_types(op(), p))[0], (Type{{2, 3}, kF32}));
  p.attrs.set("element", std::string("f16"));
  EXPECT_EQ((*infer_types(op(), p))[0], (Type{{2, 3}, kF16}));
  p.attrs.set("element", std::string("f17"));
  EXPECT_FALSE(infer_types(op(), p).ok());
  EXPECT_FALSE(infer_types(op(), Problem{.op = "copy"}).ok());
}

TEST(CopyReading, MergesAxes) {
  const CopyProblem dense = CopyProblem::of(problem(dense_operand({2, 3, 4}, kF32))).merged();
  EXPECT_EQ(dense.shape, Shape({24}));
  const CopyProblem heads = CopyProblem::of(problem(swapped({2, 12, 5, 64}, kF32, 1, 2))).merged();
  EXPECT_EQ(heads.shape, Shape({2, 12, 5, 64}));
  const CopyProblem rows = CopyProblem::of(problem(gapped({2, 3, 1, 8}, kF32, 4))).merged();
  EXPECT_EQ(rows.shape, Shape({6, 8}));
  EXPECT_EQ(rows.strides, Shape({12, 1}));
  const CopyProblem scalar = CopyProblem::of(problem(dense_operand({}, kF32))).merged();
  EXPECT_EQ(scalar.shape, Shape({1}));
}

TEST(CopyReference, FloatsBecomeIntegersTowardsZero) {
  const std::vector<Dense> in = {{{4}, {1.7, -1.7, 2.5, -0.2}}};
  EXPECT_EQ(compute_reference(op(), problem(dense_operand({4}, kF32), kI64), in)[0].v,
            (std::vector<double>{1, -1, 2, 0}));
}

TEST(CopyReference, QuantizesWithTheScaleOfTheResult) {
  const Problem p = problem(dense_operand({4}, kF32), kE4m3PerTensor);
  float x[] = {1, -3, 1000, 0.3f}, scale = 0.5f;
  uint8_t y[4] = {};
  const TensorView in[] = {{.desc = &p.in[0], .data = x}}, out[] = {{.desc = &p.out[0], .data = y, .scale = &scale}};
  ASSERT_TRUE(run_reference(op(), p, in, out).ok());
  EXPECT_EQ(decode(out[0]).v, (std::vector<double>{1, -3, 224, 0.3125}));  // 448 * 0.5; 0.6 rounds to 0.625
}

}  // namespace
}  // namespace tessera
