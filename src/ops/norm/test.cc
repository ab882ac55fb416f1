// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/norm.h"

#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/ops.h"
#include "testing/mutations.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("norm"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;
const QuantType kInt8(Element::i8, {Granularity::kTensor, Element::f32});

Problem problem(Operand x, const std::string& kind, bool gain, bool shift, Element side, const QuantType& y) {
  const int64_t cols = x.shape.back();
  std::vector<Operand> in = {std::move(x), gain ? dense_operand({cols}, side, true) : Operand{},
                             shift ? dense_operand({cols}, side, true) : Operand{}};
  Program then;
  if (y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("norm", std::move(in), {{"kind", kind}, {"eps", 1e-5}}, std::move(then), y);
}

Problem pooled(Operand x, const std::string& kind, bool gain, bool shift, Element side, const QuantType& y) {
  const int64_t cols = x.shape.back();
  std::vector<Operand> in = {std::move(x), gain ? dense_operand({cols}, side, true) : Operand{},
                             shift ? dense_operand({cols}, side, true) : Operand{}};
  Program then;
  if (y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("norm", std::move(in), {{"kind", kind}, {"eps", 1e-5}, {"pooled", int64_t{1}}}, std::move(then),
                      y);
}

// Fewer rows than warps, as many, and more by one; fewer columns than a kernel has, and as many; one group and several.
std::vector<Problem> pooled_problems() {
  struct Types {
    QuantType x, y;
    Element side;
  };
  const Types types[] = {{kF16, kF16, Element::f16},
                         {kF16, kE4m3PerTensor, Element::f32},
                         {kBf16, kBf16, Element::bf16},
                         {kF16, kF32, Element::f32},
                         {kBf16, kE4m3PerTensor, Element::bf16},
                         {kBf16, kF16, Element::f16},
                         {kF16, kBf16, Element::f16},
                         {kF32, kF32, Element::f32}};
  std::vector<Problem> all;
  for (const Types& t : types) {
    for (const Shape& s : {Shape{1, 256},
                           {3, 1, 768},
                           {5, 768},
                           {3, 8, 256},
                           {2, 9, 1024},
                           {1, 196, 768},
                           {3, 64, 256},
                           {2, 65, 512},
                           {3, 5, 2048},
                           {3, 17, 200},
                           {2, 2, 7, 384},
                           {2, 33, 1152},
                           {1, 19, 1544},
                           {0, 5, 768},
                           {3, 7, 31}}) {
      all.push_back(pooled(dense_operand(s, t.x), "layer", true, true, t.side, t.y));
      all.push_back(pooled(dense_operand(s, t.x), "rms", true, false, t.side, t.y));
    }
    all.push_back(pooled(dense_operand({3, 21, 768}, t.x), "layer", false, false, t.side, t.y));
    all.push_back(pooled(dense_operand({3, 21, 768}, t.x), "rms", false, true, t.side, t.y));
    all.push_back(pooled(gapped({3, 21, 256}, t.x, 256), "layer", true, true, t.side, t.y));
    // All tokens but the class token; tokens that lie before the images.
    Operand tokens = dense_operand({3, 16, 768}, t.x);
    tokens.strides = {17 * 768, 768, 1};
    all.push_back(pooled(tokens, "layer", true, true, t.side, t.y));
    all.push_back(pooled(swapped({3, 16, 256}, t.x, 0, 1), "layer", true, true, t.side, t.y));
  }
  return all;
}

// Results in every type of activation, over rows of one number, odd ones, and around multiples of both blocks.
std::vector<Problem> coded_problems() {
  std::vector<Problem> all;
  for (const char* text : {"i8:tensor(f32)", "e2m1:tensor(f32)", "e4m3:token(f32)!", "i8:token(f32)!",
                           "e4m3:block32(e8m0)!", "e4m3:block32(e8m0,floor)!", "e2m1:block16(e4m3):tensor(f32)!"}) {
    const QuantType y = *parse_quant_type(text);
    for (const Shape& s : {Shape{1, 1}, {5, 1}, {5, 15}, {3, 16}, {7, 17}, {2, 3, 33}, {9, 197}, {3, 768}, {3, 1100}}) {
      all.push_back(problem(dense_operand(s, kF32), "layer", true, true, Element::f32, y));
      all.push_back(problem(dense_operand(s, kF16), "rms", true, false, Element::f16, y));
    }
    all.push_back(problem(gapped({6, 33}, kF16, 8), "layer", true, true, Element::f32, y));
    all.push_back(pooled(dense_operand({3, 5, 256}, kF16), "layer", true, true, Element::f16, y));
  }
  return all;
}

std::vector<Problem> problems() {
  const Shape shapes[] = {{1, 1},    {1, 8},   {3, 7},   {2, 3, 31},  {5, 32},   {4, 33},   {3, 255},
                          {2, 256},  {7, 257}, {9, 384}, {2, 5, 768}, {1, 1023}, {3, 1024}, {3, 2048},
                          {2, 4096}, {0, 16},  {5, 264}, {3, 520},    {5, 1152}, {3, 1544}, {3, 1792}};
  struct Types {
    QuantType x, y;
    Element side;
  };
  const Types types[] = {{kF32, kF32, Element::f32},           {kF16, kF16, Element::f16},
                         {kF16, kF16, Element::f32},           {kBf16, kBf16, Element::bf16},
                         {kF16, kE4m3PerTensor, Element::f16}, {kF32, kE4m3PerTensor, Element::f32},
                         {kF32, kF16, Element::f32},           {kBf16, kE4m3PerTensor, Element::bf16},
                         {kF16, kInt8, Element::f16},          {kBf16, kInt8, Element::f32},
                         {kF16, kE4m3PerToken, Element::f16},  {kBf16, kE4m3PerToken, Element::f32}};
  std::vector<Problem> all;
  for (const Types& t : types) {
    for (const Shape& s : shapes) {
      all.push_back(problem(dense_operand(s, t.x), "layer", true, true, t.side, t.y));
      all.push_back(problem(dense_operand(s, t.x), "rms", true, false, t.side, t.y));
    }
    all.push_back(problem(dense_operand({5, 48}, t.x), "layer", false, false, t.side, t.y));
    all.push_back(problem(dense_operand({5, 768}, t.x), "layer", true, false, t.side, t.y));
    all.push_back(problem(gapped({6, 24}, t.x, 8), "layer", true, true, t.side, t.y));
    all.push_back(problem(gapped({4, 768}, t.x, 768), "layer", true, true, t.side, t.y));
    // q of a QKV matrix, heads before tokens; and rows that all lie apart.
    for (const int64_t size : {16, 7}) {
      Operand q = dense_operand({2, 3, 5, size}, t.x);
      q.strides = {5 * 9 * size, size, 9 * size, 1};
      all.push_back(problem(q, "rms", true, false, t.side, t.y));
      all.push_back(problem(swapped({3, 4, 2, size}, t.x, 0, 2), "layer", true, true, t.side, t.y));
    }
  }
  for (const Problem& p : coded_problems()) all.push_back(p);
  for (const Problem& p : pooled_problems()) all.push_back(p);
  return all;
}

class NormVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values, Adjust adjust = nullptr) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values, adjust);
  }
};

TEST_P(NormVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(NormVariant, AgreesOnZeros) { run(problems(), Values::kZeros); }
TEST_P(NormVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
// Every warp has several rows, and not as many as the next.
TEST_P(NormVariant, AgreesOnManyRows) {
  if (info(GetParam()->arch).device != DeviceKind::kCuda) GTEST_SKIP() << "takes one row after the other";
  std::vector<Problem> list;
  for (const int64_t cols : {200, 512, 768}) {
    for (const QuantType& y : {kF16, kE4m3PerTensor, kE4m3PerToken, kInt8})
      list.push_back(problem(dense_operand({13001, cols}, kF16), "layer", true, true, Element::f16, y));
  }
  run(list, Values::kRandom);
}
// A mean far from zero: E[x^2] - mean^2 would lose every digit of the variance here, the second pass keeps them.
TEST_P(NormVariant, KeepsTheVarianceBesideALargeMean) {
  const std::vector<Problem> list = {problem(dense_operand({5, 768}, kF32), "layer", true, true, Element::f32, kF32)};
  run(list, Values::kRandom, [](const Problem&, size_t i, std::vector<double>& numbers) {
    if (i != 0) return;
    for (double& v : numbers) v = v * 0.01 + 1000;
  });
}
TEST_P(NormVariant, AgreesOnRealShapes) {
  run({problem(dense_operand({197, 768}, kF16), "layer", true, true, Element::f16, kF16),
       problem(dense_operand({2, 197, 768}, kF16), "layer", true, true, Element::f32, kE4m3PerTensor),
       problem(dense_operand({2, 197, 1024}, kF32), "layer", true, true, Element::f32, kF32),
       problem(gapped({64, 768}, kF16, 196 * 768), "layer", true, true, Element::f16, kE4m3PerTensor),
       // More rows than warps: each takes several, and not all the same number.
       problem(dense_operand({6303, 768}, kF16), "layer", true, true, Element::f16, kE4m3PerTensor),
       problem(dense_operand({20011, 64}, kBf16), "rms", true, false, Element::bf16, kInt8)},
      Values::kRandom);
}
// Gain and shift that another kernel makes (adaRMS): read after it, beside constants.
TEST_P(NormVariant, AgreesOnComputedGains) {
  std::vector<Problem> list;
  for (const QuantType& x : {kBf16, kF16, kF32, kE4m3PerTensor}) {
    for (const Shape& s : {Shape{10, 1024}, {50, 1032}, {712, 2048}, {3, 2056}, {5, 4096}, {7, 8}, {2, 31}}) {
      for (const size_t computed : {1, 2}) {
        const QuantType y = x == kE4m3PerTensor ? kBf16 : x;
        list.push_back(problem(dense_operand(s, x), computed == 1 ? "rms" : "layer", true, true, Element::f32, y));
        list.back().in[computed].constant = false;
      }
    }
  }
  run(list, Values::kRandom);
}
TEST_P(NormVariant, AgreesOnMeansOfTokens) {
  std::vector<Problem> list;
  for (const QuantType& y : {kF16, kE4m3PerTensor}) {
    for (const Shape& s : {Shape{1, 256, 768}, {64, 256, 768}, {64, 196, 1024}, {3, 256, 2048}})
      list.push_back(pooled(dense_operand(s, kF16), "layer", true, true, Element::f16, y));
    // More groups than blocks run at once.
    list.push_back(pooled(dense_operand({700, 9, 256}, kBf16), "rms", true, false, Element::bf16, y));
  }
  run(list, Values::kRandom);
}
// A mean far from zero, and rows whose normalised numbers cancel in the mean.
TEST_P(NormVariant, KeepsTheMeanOfRowsThatCancel) {
  run({pooled(dense_operand({2, 64, 768}, kF16), "layer", true, true, Element::f32, kF32)}, Values::kRandom,
      [](const Problem& p, size_t i, std::vector<double>& numbers) {
        if (i != 0) return;
        const size_t cols = static_cast<size_t>(p.in[0].shape.back());
        const std::vector<double> drawn = numbers;
        const size_t group = 64 * cols;
        for (size_t at = 0; at < numbers.size(); ++at)
          numbers[at] = (at / cols % 2 == 0 ? 1 : -1) * (drawn[at / group * cols + at % cols] * 0.125 + 20);
      });
}
TEST_P(NormVariant, Sanitize) {
  run({pooled(dense_operand({3, 196, 768}, kF16), "layer", true, true, Element::f16, kE4m3PerTensor),
       pooled(dense_operand({2, 21, 200}, kBf16), "rms", true, false, Element::bf16, kF32),
       problem(dense_operand({5, 768}, kF16), "layer", true, true, Element::f16, kF16),
       problem(dense_operand({3, 257}, kF32), "rms", true, false, Element::f32, kF32),
       problem(dense_operand({3, 48}, kF16), "layer", true, true, Element::f32, kE4m3PerTensor)},
      Values::kRandom);
}
// What the checks above would see of a wrong kernel (testing/mutations.h).
TEST(NormPower, MutationsAreCaught) { expect_power_of_all(op(), problems()); }

INSTANTIATE_TEST_SUITE_P(Variants, NormVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(NormContract, OnlyTheCpuMakesCodesOfEveryType) {
  for (const Problem& p : coded_problems()) {
    if (p.out[0].type == kInt8) continue;
    for (const Variant* v : op().variants) {
      if (p.out[0].type == kE4m3PerToken && v == find_variant("norm/cuda_half")) continue;  // below
      EXPECT_EQ(v->accepts(p).refusal.empty(), v->arch == Arch::cpu) << v->name << " " << to_string(p.out[0].type);
    }
  }
}

TEST(NormContract, RowsOfSixteenBitsLieInAWarp) {
  const auto refusal = [](const Operand& x, const QuantType& y, bool constant = true) {
    Problem p = problem(x, "layer", true, true, Element::f16, y);
    p.in[1].constant = constant;
    return find_variant("norm/cuda_half")->accepts(p).refusal;
  };
  for (const QuantType& y : {kF16, kE4m3PerTensor, kE4m3PerToken, kInt8}) {
    EXPECT_EQ(refusal(dense_operand({3, 768}, kF16), y), "");
    EXPECT_EQ(refusal(gapped({3, 768}, kF16, 768), y), "");
    EXPECT_NE(refusal(dense_operand({3, 768}, kF32), y), "");
  }
  EXPECT_NE(refusal(dense_operand({3, 768}, kF16), kBf16), "");
  EXPECT_NE(refusal(dense_operand({3, 12}, kF16), kF16), "");
  EXPECT_NE(refusal(dense_operand({3, 2056}, kF16), kF16), "");
  EXPECT_NE(refusal(gapped({3, 768}, kF16, 4), kF16), "") << "rows begin at multiples of 8 bytes";
  EXPECT_NE(refusal(swapped({3, 4, 2, 16}, kF16, 0, 2), kF16), "");
  EXPECT_NE(refusal(dense_operand({3, 768}, kF16), kF16, false), "") << "a gain that another kernel makes";
}

TEST(NormContract, FewRowsHaveABlockEach) {
  const Variant& few = *find_variant("norm/cuda_few");
  const auto rows = [](int64_t count, int64_t cols) {
    return problem(dense_operand({count, cols}, kBf16), "rms", true, false, Element::f32, kBf16);
  };
  Problem made = rows(10, 1024);
  made.in[1].constant = false;
  EXPECT_EQ(few.accepts(made).refusal, "") << "a gain that another kernel makes";
  EXPECT_EQ(few.worthwhile(made).refusal, "");
  EXPECT_EQ(few.worthwhile(rows(968, 2048)).refusal, "");
  EXPECT_NE(few.worthwhile(rows(12608, 768)).refusal, "");
  EXPECT_NE(few.accepts(rows(10, 4104)).refusal, "");
  EXPECT_NE(few.accepts(rows(10, 12)).refusal, "");
  EXPECT_NE(few.accepts(problem(gapped({3, 768}, kF16, 4), "layer", true, true, Element::f16, kF16)).refusal, "")
      << "rows begin at multiples of 8 bytes";
}

TEST(NormContract, MeansHaveKernelsOfTheirOwn) {
  const auto refusal = [](const char* variant, const Problem& p) { return find_variant(variant)->accepts(p).refusal; };
  const auto mean = [](const Operand& x, const QuantType& y) {
    return pooled(x, "layer", true, true, Element::f16, y);
  };
  for (const QuantType& y : {kF16, kBf16, kF32, kE4m3PerTensor}) {
    const Problem p = mean(dense_operand({64, 256, 768}, kF16), y);
    EXPECT_EQ(refusal("norm/sm90_pooled", p), "");
    EXPECT_EQ(refusal("norm/cpu", p), "");
    for (const char* other : {"norm/cuda_few", "norm/cuda_half", "norm/cuda_rows"})
      EXPECT_NE(refusal(other, p).find("mean"), std::string::npos) << other;
  }
  EXPECT_NE(refusal("norm/sm90_pooled",
                    problem(dense_operand({64, 256, 768}, kF16), "layer", true, true, Element::f16, kF16)),
            "");
  EXPECT_NE(refusal("norm/sm90_pooled", mean(dense_operand({3, 5, 768}, kF32), kF32)), "");
  EXPECT_NE(refusal("norm/sm90_pooled", mean(dense_operand({3, 5, 768}, kF16), kInt8)), "");
  EXPECT_NE(refusal("norm/sm90_pooled", mean(dense_operand({3, 5, 12}, kF16), kF16)), "");
  EXPECT_NE(refusal("norm/sm90_pooled", mean(dense_operand({3, 5, 2056}, kF16), kF16)), "");
  EXPECT_NE(refusal("norm/sm90_pooled", mean(gapped({3, 5, 768}, kF16, 4), kF16)), "")
      << "rows begin at multiples of 8 bytes";
  EXPECT_EQ(refusal("norm/sm90_pooled", mean(swapped({3, 5, 768}, kF16, 0, 1), kF16)), "")
      << "groups beside each other";
  EXPECT_NE(refusal("norm/sm90_pooled", mean(swapped({3, 4, 5, 768}, kF16, 0, 2), kF16)), "")
      << "groups at two distances";
  Problem made = mean(dense_operand({3, 5, 768}, kF16), kF16);
  made.in[1].constant = false;
  EXPECT_NE(refusal("norm/sm90_pooled", made), "") << "a gain that another kernel makes";
}

TEST(NormContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(NormRule, RefusesWhatDoesNotFit) {
  const auto infer = [](const Shape& x, const Shape& gain, Attrs attrs) {
    return infer_types(op(), Problem{.op = "norm",
                                     .in = {dense_operand(x, kF16), dense_operand(gain, kF16)},
                                     .out = {},
                                     .attrs = std::move(attrs)});
  };
  EXPECT_EQ((*infer({2, 3, 8}, {8}, {{"eps", 1e-6}}))[0], (Type{{2, 3, 8}, kF16}));
  EXPECT_FALSE(infer({2, 3, 8}, {7}, {{"eps", 1e-6}}).ok());
  EXPECT_FALSE(infer({2, 3, 8}, {8}, {{"eps", -1.0}}).ok());
  EXPECT_FALSE(infer({2, 3, 8}, {8}, {{"kind", std::string("batch")}}).ok());
  EXPECT_FALSE(infer({2, 0}, {0}, {}).ok());
  EXPECT_FALSE(infer({}, {1}, {}).ok());
}

TEST(NormRule, PooledDropsTheAxisBeforeTheLast) {
  const auto infer = [](const Shape& x, const Attr& value) {
    return infer_types(op(),
                       Problem{.op = "norm", .in = {dense_operand(x, kF16)}, .out = {}, .attrs = {{"pooled", value}}});
  };
  EXPECT_EQ((*infer({2, 3, 8}, int64_t{1}))[0], (Type{{2, 8}, kF16}));
  EXPECT_EQ((*infer({3, 8}, int64_t{1}))[0], (Type{{8}, kF16}));
  EXPECT_EQ((*infer({2, 3, 8}, int64_t{0}))[0], (Type{{2, 3, 8}, kF16}));
  const auto refused = [&](const Shape& x, const Attr& value, const char* why) {
    const auto y = infer(x, value);
    ASSERT_FALSE(y.ok()) << why;
    EXPECT_EQ(y.status().code(), Code::kBadInput);
    EXPECT_NE(y.status().message().find(why), std::string::npos) << y.status().message();
  };
  refused({8}, int64_t{1}, "axis before the last");
  refused({2, 0, 8}, int64_t{1}, "no rows");
  refused({2, 3, 8}, int64_t{2}, "0 or 1");
  refused({2, 3, 8}, std::string("yes"), "0 or 1");
}

TEST(NormReference, SmallNumbersByHand) {
  // [1 3]: mean 2, var 1, eps 0.5625 -> 1 / 1.25; gain 2, shift 1. RMS of [3 4]: var 12.5.
  Problem p = problem(dense_operand({1, 2}, kF32), "layer", true, true, Element::f32, kF32);
  p.attrs.set("eps", 0.5625);
  const std::vector<Dense> in = {{{1, 2}, {1, 3}}, {{2}, {2, 2}}, {{2}, {1, 1}}};
  const Dense layer = compute_reference(op(), p, in)[0];
  EXPECT_DOUBLE_EQ(layer.v[0], -0.6);
  EXPECT_DOUBLE_EQ(layer.v[1], 2.6);
  Problem rms = problem(dense_operand({1, 2}, kF32), "rms", false, false, Element::f32, kF32);
  rms.attrs.set("eps", 12.5);
  const std::vector<Dense> x = {{{1, 2}, {3, 4}}, {}, {}};
  const Dense y = compute_reference(op(), rms, x)[0];
  EXPECT_DOUBLE_EQ(y.v[0], 0.6);
  EXPECT_DOUBLE_EQ(y.v[1], 0.8);
  // Two groups of three rows: -0.8 and 0.8 in turn, so a third of one of them is left; all three alike.
  Problem mean = pooled(dense_operand({2, 3, 2}, kF32), "layer", true, true, Element::f32, kF32);
  mean.attrs.set("eps", 0.5625);
  const std::vector<Dense> rows = {{{2, 3, 2}, {1, 3, 3, 1, 1, 3, 3, 1, 5, 3, 1, -1}}, {{2}, {3, 3}}, {{2}, {1, 1}}};
  const Dense means = compute_reference(op(), mean, rows)[0];
  EXPECT_EQ(means.shape, (Shape{2, 2}));
  for (const auto& [i, want] : {std::pair{0, 0.2}, {1, 1.8}, {2, 3.4}, {3, -1.4}})
    EXPECT_DOUBLE_EQ(means.v[static_cast<size_t>(i)], want) << i;
}

}  // namespace
}  // namespace tessera
