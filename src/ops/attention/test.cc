// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "op/reference.h"
#include "ops/ops.h"
#include "testing/mutations.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("attention"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;

struct Form {
  int64_t batch, queries, keys, heads, kv_heads, size;
};

// q, k and v as views of one [batch, tokens, 3, heads, size] matrix, or dense.
Problem problem(const Form& f, const QuantType& t, bool views = false, bool causal = false,
                std::optional<Shape> bias = {}, std::optional<QuantType> y = {}) {
  const auto tensor = [&](int64_t tokens, int64_t heads) {
    Operand o = dense_operand({f.batch, tokens, heads, f.size}, t);
    if (views) o.strides = {tokens * 3 * heads * f.size, 3 * heads * f.size, f.size, 1};
    return o;
  };
  std::vector<Operand> in = {tensor(f.queries, f.heads), tensor(f.keys, f.kv_heads), tensor(f.keys, f.kv_heads)};
  if (bias) in.push_back(dense_operand(*bias, t));
  Program then;
  if (y && y->scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("attention", std::move(in),
                      {{"scale", 1 / std::sqrt(static_cast<double>(f.size))}, {"causal", int64_t{causal}}},
                      std::move(then), y);
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const QuantType& t : {kF32, kF16, kBf16}) {
    for (int64_t tokens : {1, 7, 16, 17, 31, 64, 65, 129}) all.push_back(problem({2, tokens, tokens, 2, 2, 64}, t));
    for (int64_t size : {8, 16, 32, 40, 72, 80, 96, 128}) all.push_back(problem({1, 19, 19, 2, 2, size}, t));
    all.push_back(problem({2, 33, 33, 3, 3, 64}, t, /*views=*/true));
    all.push_back(problem({1, 1, 50, 4, 4, 64}, t));
    all.push_back(problem({1, 20, 20, 6, 2, 64}, t));  // three query heads share one of k and v
    all.push_back(problem({1, 20, 20, 4, 1, 64}, t));
    all.push_back(problem({1, 33, 33, 2, 2, 64}, t, false, /*causal=*/true));
    all.push_back(problem({1, 5, 40, 2, 2, 64}, t, false, /*causal=*/true));
    all.push_back(problem({1, 3, 1100, 4, 2, 64}, t));  // more keys than one block of any kernel
    all.push_back(problem({1, 70, 1100, 2, 1, 64}, t, false, /*causal=*/true));
    all.push_back(problem({1, 3, 1100, 2, 2, 64}, t, false, false, Shape{1, 2, 3, 1100}));
    for (const Shape& bias : {Shape{2, 3, 17, 17}, Shape{1, 3, 17, 17}, Shape{2, 1, 1, 17}, Shape{17, 17}, Shape{1}})
      all.push_back(problem({2, 17, 17, 3, 3, 64}, t, false, false, bias));
    all.push_back(problem({2, 17, 17, 3, 3, 64}, t, true, false, {}, kE4m3PerTensor));
  }
  return all;
}

// Codes for q, k and v, each with its own scale; `p`: the softmax is rounded too.
struct Fp8 {
  bool p = true, views = false, causal = false;
  bool padded = false;  // heads start at multiples of 16 bytes
  std::optional<Shape> bias = {};
  QuantType y = kF16, q = kE4m3PerTensor, v = kE4m3PerTensor;
};
Problem fp8_problem(const Form& f, const Fp8& how = {}) {
  Problem p = problem(f, kE4m3PerTensor, how.views, how.causal, how.bias, how.y);
  p.in[0].type = how.q, p.in[2].type = how.v;
  if (how.bias) p.in[3].type = kF32;
  if (how.p) p.attrs.set("p", "e4m3:tensor(f32)");
  if (how.padded) {
    for (size_t i = 0; i < 3; ++i) {
      const Shape& shape = p.in[i].shape;
      const int64_t head = (f.size + 15) / 16 * 16, row = (how.views ? 3 : 1) * shape[2] * head;
      p.in[i].strides = {shape[1] * row, row, head, 1};
    }
  }
  return p;
}

std::vector<Problem> fp8_problems() {
  std::vector<Problem> all;
  for (const bool p : {true, false}) {
    for (int64_t tokens : {1, 2, 15, 16, 17, 65, 129})
      all.push_back(fp8_problem({2, tokens, tokens, 2, 2, 64}, {.p = p}));
    for (int64_t size : {1, 3, 8, 31, 32, 33, 64, 72, 80, 128, 256})
      all.push_back(fp8_problem({1, 19, 21, 2, 2, size}, {.p = p}));
    for (const QuantType& y : {kF32, kF16, kBf16, kE4m3PerTensor})
      all.push_back(fp8_problem({2, 33, 33, 3, 3, 64}, {.p = p, .views = true, .y = y}));
    all.push_back(fp8_problem({1, 20, 20, 6, 2, 72}, {.p = p}));
    all.push_back(fp8_problem({1, 20, 20, 4, 1, 80}, {.p = p}));
    all.push_back(fp8_problem({1, 5, 40, 2, 2, 64}, {.p = p, .causal = true}));
    all.push_back(fp8_problem({1, 40, 40, 4, 1, 33}, {.p = p, .causal = true}));
    // More keys than a block: the maximum of a row may lie in the last one.
    all.push_back(fp8_problem({1, 3, 1100, 4, 2, 64}, {.p = p}));
    all.push_back(fp8_problem({1, 70, 1100, 2, 1, 64}, {.p = p, .causal = true}));
    all.push_back(fp8_problem({1, 3, 1100, 2, 2, 256}, {.p = p, .bias = Shape{1, 2, 3, 1100}}));
    for (const Shape& bias : {Shape{2, 3, 17, 17}, Shape{2, 1, 1, 17}, Shape{17, 17}, Shape{1}})
      all.push_back(fp8_problem({2, 17, 17, 3, 3, 64}, {.p = p, .bias = bias}));
    // A scale on some of them only, as a file may ask for it.
    all.push_back(fp8_problem({1, 19, 19, 2, 2, 64}, {.p = p, .v = kF16}));
    all.push_back(fp8_problem({1, 19, 19, 2, 2, 64}, {.p = p, .q = kBf16, .v = kBf16}));
  }
  Problem plain = problem({1, 19, 19, 2, 2, 64}, kF16);  // only the softmax
  plain.attrs.set("p", "e4m3:tensor(f32)");
  all.push_back(plain);
  return all;
}

// Few keys, which a kernel may hold all at once, and heads at addresses that TMA takes.
std::vector<Problem> short_problems() {
  std::vector<Problem> all;
  for (int64_t tokens : {1, 15, 16, 17, 63, 64, 65, 192, 193, 197, 208, 209, 256}) {
    all.push_back(fp8_problem({2, tokens, tokens, 2, 2, 64}, {.padded = true}));
    for (const QuantType& t : {kF16, kBf16}) all.push_back(problem({1, tokens, tokens, 2, 2, 64}, t));
  }
  for (int64_t size : {8, 16, 24, 64, 72, 80, 96, 104, 128}) {
    for (const QuantType& y : {kF16, kE4m3PerTensor}) {
      all.push_back(fp8_problem({2, 70, 21, 3, 3, size}, {.padded = true, .y = y}));
      all.push_back(fp8_problem({1, 130, 131, 2, 2, size}, {.views = true, .padded = true, .y = y}));
    }
    all.push_back(problem({1, 70, 131, 2, 1, size}, kF16));
    for (const QuantType& y : {kE4m3PerTensor, kInt8PerTensor})
      all.push_back(problem({1, 70, 131, 2, 2, size}, kBf16, /*views=*/true, false, {}, y));
  }
  all.push_back(fp8_problem({2, 70, 197, 6, 2, 64}, {.padded = true, .y = kBf16}));  // heads share keys
  all.push_back(fp8_problem({2, 197, 70, 4, 1, 72}, {.padded = true}));
  all.push_back(fp8_problem({3, 600, 50, 2, 2, 64}, {.padded = true, .y = kE4m3PerTensor}));
  all.push_back(fp8_problem({40, 70, 33, 7, 7, 64}, {.padded = true}));   // more heads than SMs
  Problem single = fp8_problem({1, 70, 33, 1, 1, 64}, {.padded = true});  // strides of single items are never stepped
  for (size_t i = 0; i < 3; ++i) single.in[i].strides[0] = single.in[i].strides[2] = 7;
  all.push_back(single);
  return all;
}

class AttentionVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values, Adjust adjust = nullptr) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values, adjust);
  }
};

TEST_P(AttentionVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(AttentionVariant, AgreesOnZeros) { run(problems(), Values::kZeros); }
TEST_P(AttentionVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
TEST_P(AttentionVariant, AgreesOnRealShapes) {
  std::vector<Problem> list;
  for (const QuantType& t : {kF32, kF16, kBf16}) list.push_back(problem({2, 197, 197, 12, 12, 64}, t, /*views=*/true));
  list.push_back(problem({1, 577, 577, 2, 2, 64}, kF16, true));
  run(list, Values::kRandom);
}
TEST_P(AttentionVariant, AgreesOnFp8) {
  run(fp8_problems(), Values::kRandom);
  run(fp8_problems(), Values::kZeros);
  run(fp8_problems(), Values::kExtremes);
}
TEST_P(AttentionVariant, AgreesOnFewKeys) {
  run(short_problems(), Values::kRandom);
  run(short_problems(), Values::kZeros);
  run(short_problems(), Values::kExtremes);
}
// One key of a row takes all the weight; next, all keys have the same.
TEST_P(AttentionVariant, AgreesWhereOneKeyDominates) {
  run(short_problems(), Values::kRandom, [](const Problem& p, size_t i, std::vector<double>& numbers) {
    if (i != 1) return;
    const auto size = static_cast<size_t>(p.in[1].shape[2] * p.in[1].shape[3]);
    const size_t row = static_cast<size_t>(p.in[1].shape[1] - 1) * 2 / 3;
    for (size_t j = 0; j < numbers.size(); ++j)
      numbers[j] *= j / size % static_cast<size_t>(p.in[1].shape[1]) == row ? 30 : 0.3;
  });
}
TEST_P(AttentionVariant, AgreesWhereAllKeysAreEqual) {
  run(short_problems(), Values::kRandom, [](const Problem& p, size_t i, std::vector<double>& numbers) {
    if (i != 1) return;
    const auto size = static_cast<size_t>(p.in[1].shape[2] * p.in[1].shape[3]);
    for (size_t j = 0; j < numbers.size(); ++j) numbers[j] = numbers[j % size];
  });
}
TEST_P(AttentionVariant, AgreesOnFp8OfRealShapes) {
  run({fp8_problem({1, 197, 197, 12, 12, 64}, {.views = true, .y = kE4m3PerTensor}), fp8_problem({2, 65, 65, 6, 6, 32}),
       fp8_problem({1, 577, 577, 2, 2, 64}, {.views = true}), fp8_problem({1, 256, 256, 2, 2, 72}),
       fp8_problem({2, 256, 256, 16, 16, 72}, {.views = true, .padded = true}), fp8_problem({1, 50, 968, 8, 1, 256})},
      Values::kRandom);
}
// Numbers far beyond the largest code: all of them are that code, scores are as far apart as they get, and a weight is
// 1 or vanishes.
TEST_P(AttentionVariant, AgreesOnSaturatedFp8) {
  run(fp8_problems(), Values::kRandom, [](const Problem& p, size_t i, std::vector<double>& numbers) {
    if (i == 3 || !p.in[i].type.scaled()) return;
    for (double& x : numbers) x = std::copysign(1e6, x);
  });
}
// Weights just under one another: every code of p takes part, its subnormals as well.
TEST_P(AttentionVariant, AgreesOnEveryCodeOfP) {
  run({fp8_problem({1, 9, 1600, 2, 2, 64}, {.bias = Shape{1600}}),
       fp8_problem({1, 9, 1600, 1, 1, 31}, {.bias = Shape{1600}})},
      Values::kRandom, [](const Problem&, size_t i, std::vector<double>& numbers) {
        if (i == 0) std::fill(numbers.begin(), numbers.end(), 0.0);
        if (i != 3) return;
        for (size_t j = 0; j < numbers.size(); ++j) numbers[j] = -static_cast<double>(j) * 0.01 - 0.003;
      });
}
// A mask as models give it: 0 where a key takes part, a large negative number where it does not.
TEST_P(AttentionVariant, AgreesUnderAMask) {
  run({problem({2, 17, 17, 3, 3, 64}, kF32, false, false, Shape{2, 1, 1, 17}),
       problem({2, 17, 17, 3, 3, 64}, kF16, false, false, Shape{2, 1, 1, 17})},
      Values::kRandom, [](const Problem&, size_t i, std::vector<double>& numbers) {
        if (i != 3) return;
        for (size_t j = 0; j < numbers.size(); ++j) numbers[j] = j % 17 < 9 ? 0 : -10000;
      });
}
// In the second batch item no query may see a key.
TEST_P(AttentionVariant, AQueryWithoutKeysGetsZero) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const QuantType& t : {kF32, kF16, kBf16, kE4m3PerTensor}) {
    for (const int64_t keys : {17, 600}) {
      const Form form{2, 9, keys, 3, 3, 64};
      const Shape bias{2, 1, 1, keys};
      Problem p = t.scaled() ? fp8_problem(form, {.bias = bias}) : problem(form, t, false, false, bias);
      p.in[3].type = kF32;
      if (!GetParam()->accepts(p)) continue;
      const Case c = make_case(p, 3, Values::kRandom, [](const Problem&, size_t i, std::vector<double>& numbers) {
        if (i != 3) return;
        for (size_t j = 0; j < numbers.size(); ++j) numbers[j] = j < numbers.size() / 2 ? 0 : -INFINITY;
      });
      const auto got = run_on(*GetParam(), c);
      ASSERT_TRUE(got.ok()) << got.status().message();
      const int64_t half = 9 * 3 * 64;
      for (int64_t i = 0; i < half; ++i) {
        ASSERT_TRUE(std::isfinite((*got)[0].number(i))) << i;
        ASSERT_EQ((*got)[0].number(half + i), 0) << i;
        ASSERT_EQ(c.exact[0].v[static_cast<size_t>(half + i)], 0) << i;
      }
    }
  }
}
// More heads than SMs by so much that each block goes round its stages and slots more than once, in every form
// of sm90_short; and from the last visit to the first, which changes nothing.
TEST(ShortAttention, ManyHeadsForEachProcessor) {
  const Variant& variant = *find_variant("attention/sm90_short");
  TS_SKIP_WITHOUT_DEVICE(variant);
  std::vector<Problem> list;
  for (const Form& form : {Form{70, 70, 256, 12, 12, 64}, Form{70, 70, 200, 8, 8, 72}, Form{70, 70, 100, 8, 8, 128},
                           Form{140, 70, 100, 8, 8, 64}, Form{70, 70, 197, 12, 12, 64}}) {
    for (const QuantType& t : {kF16, kBf16}) list.push_back(problem(form, t));
    list.push_back(fp8_problem(form, {.padded = true, .y = kE4m3PerTensor}));
  }
  uint64_t seed = 1;
  for (const Problem& p : list) {
    ASSERT_TRUE(variant.accepts(p)) << variant.accepts(p).refusal;
    Case c = make_case(p, seed++, Values::kRandom);
    const auto there = run_on(variant, c);
    ASSERT_TRUE(there.ok()) << there.status().message();
    expect_close(variant, c, judge_of(variant, c), *there);
    c.problem.backward = true;
    const auto back = run_on(variant, c);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(std::memcmp((*there)[0].data.data(), (*back)[0].data.data(), (*there)[0].data.size()), 0) << c.text();
  }
}
TEST_P(AttentionVariant, Sanitize) {
  std::vector<Problem> list;
  for (const QuantType& t : {kF32, kF16}) {
    list.push_back(problem({1, 33, 33, 2, 2, 64}, t, true));
    list.push_back(problem({1, 7, 19, 2, 1, 40}, t, false, true));
    list.push_back(problem({1, 17, 17, 3, 3, 64}, t, false, false, Shape{1, 3, 17, 17}));
  }
  list.push_back(fp8_problem({1, 70, 33, 2, 2, 72}, {.padded = true, .y = kE4m3PerTensor}));
  list.push_back(fp8_problem({1, 70, 256, 2, 2, 64}, {.padded = true, .y = kE4m3PerTensor}));
  list.push_back(problem({1, 70, 256, 2, 2, 64}, kF16));
  run(list, Values::kRandom);
}
// What every check above would see of a wrong kernel, with and without a device (testing/mutations.h).
TEST(AttentionPower, MutationsAreCaught) {
  for (const auto& list : {problems(), fp8_problems(), short_problems()}) {
    std::vector<Problem> some;
    for (const Problem& p : list) {
      if (op().flops(p) < 4e8) some.push_back(p);
    }
    expect_power_of_all(op(), some);
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, AttentionVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(AttentionContract, EveryVariantAcceptsSomething) {
  std::vector<Problem> all = problems();
  for (const Problem& p : fp8_problems()) all.push_back(p);
  expect_each_accepts(op(), all);
}
// What a file asks for in FP8 is multiplied in FP8, the softmax too, or refused.
TEST(AttentionContract, TheCpuTakesEveryFp8AndGpusWhatTheyMultiplyInIt) {
  for (const Problem& p : fp8_problems()) {
    const AttentionProblem a = AttentionProblem::of(p);
    const bool fp8 = a.q == kE4m3PerTensor && a.v == kE4m3PerTensor && a.p == kE4m3PerTensor;
    for (const Variant* v : op().variants) {
      if (info(v->arch).device == DeviceKind::kHost || !v->accepts(p)) continue;
      EXPECT_TRUE(fp8) << v->name;
      EXPECT_EQ(v->arithmetic(p).computed, Element::e4m3) << v->name;
    }
    EXPECT_TRUE(find_variant("attention/cpu")->accepts(p)) << find_variant("attention/cpu")->accepts(p).refusal;
  }
}

TEST(AttentionContract, TheShortKernelTakesWhatItHolds) {
  const Variant& v = *find_variant("attention/sm90_short");
  for (const Problem& p : short_problems()) EXPECT_TRUE(v.accepts(p)) << v.accepts(p).refusal;
  for (const Fp8& how : {Fp8{.p = false}, Fp8{.causal = true}, Fp8{.bias = Shape{1}}, Fp8{.y = kF32}, Fp8{.q = kF16}})
    EXPECT_FALSE(v.accepts(fp8_problem({1, 19, 19, 2, 2, 64}, how)));
  EXPECT_FALSE(v.accepts(fp8_problem({1, 19, 257, 2, 2, 64})));
  EXPECT_FALSE(v.accepts(fp8_problem({1, 19, 19, 2, 2, 136}, {.padded = true})));
  EXPECT_FALSE(v.accepts(fp8_problem({1, 19, 19, 2, 2, 72}))) << "heads 72 bytes apart";
  EXPECT_FALSE(v.accepts(fp8_problem({1, 19, 19, 2, 2, 20}, {.padded = true})));
}

TEST(AttentionRule, HeadsTokensAndBias) {
  const auto infer = [](const Shape& q, const Shape& k, const Shape& v, std::optional<Shape> bias = {},
                        bool causal = false) {
    Problem p{.op = "attention",
              .in = {dense_operand(q, kF16), dense_operand(k, kF16), dense_operand(v, kF16)},
              .out = {},
              .attrs = {{"causal", int64_t{causal}}}};
    if (bias) p.in.push_back(dense_operand(*bias, kF16));
    return infer_types(op(), p);
  };
  EXPECT_EQ((*infer({2, 5, 8, 64}, {2, 9, 2, 64}, {2, 9, 2, 32}))[0], (Type{{2, 5, 8, 32}, kF16}));
  EXPECT_FALSE(infer({2, 5, 8, 64}, {2, 9, 3, 64}, {2, 9, 3, 64}).ok());
  EXPECT_FALSE(infer({2, 5, 8, 64}, {2, 9, 8, 32}, {2, 9, 8, 64}).ok());
  EXPECT_FALSE(infer({2, 5, 8, 64}, {1, 9, 8, 64}, {1, 9, 8, 64}).ok());
  EXPECT_FALSE(infer({2, 5, 8, 64}, {2, 9, 8, 64}, {2, 8, 8, 64}).ok());
  EXPECT_FALSE(infer({2, 5, 8, 64}, {2, 0, 8, 64}, {2, 0, 8, 64}).ok());
  EXPECT_FALSE(infer({5, 8, 64}, {9, 8, 64}, {9, 8, 64}).ok());
  EXPECT_TRUE(infer({2, 5, 8, 64}, {2, 9, 8, 64}, {2, 9, 8, 64}, Shape{8, 1, 9}).ok());
  EXPECT_FALSE(infer({2, 5, 8, 64}, {2, 9, 8, 64}, {2, 9, 8, 64}, Shape{8, 9, 5}).ok());
  EXPECT_FALSE(infer({2, 9, 8, 64}, {2, 5, 8, 64}, {2, 5, 8, 64}, {}, true).ok());
}

TEST(AttentionRule, OperandsAreFloatsOrCodesOfE4m3) {
  for (const QuantType& good : {kF32, kF16, kBf16, kE4m3PerTensor})
    EXPECT_TRUE(infer_types(op(), problem({1, 2, 2, 1, 1, 32}, good)).ok()) << to_string(good);
  for (const char* bad : {"i8", "i8:tensor(f32)", "e5m2:tensor(f32)", "e4m3:tensor(f32)!", "e4m3:token(f32)",
                          "e4m3:block32(e8m0)", "e2m1:block16(e4m3):tensor(f32)"}) {
    Problem p = problem({1, 2, 2, 1, 1, 32}, kF16);
    p.in[1].type = *parse_quant_type(bad);
    EXPECT_FALSE(infer_types(op(), p).ok()) << bad;
  }
}

TEST(AttentionRule, TheSoftmaxIsRoundedToSmallFloats) {
  Problem p = problem({1, 2, 2, 1, 1, 8}, kF16);
  for (const char* good : {"e4m3:tensor(f32)", "e5m2:tensor(f32)", "e2m1:tensor(f32)"}) {
    p.attrs.set("p", good);
    EXPECT_TRUE(infer_types(op(), p).ok()) << good;
  }
  for (const char* bad :
       {"", "e4m3", "f16", "f16:tensor(f32)", "i8:tensor(f32)", "e4m3:token(f32)", "e4m3:tensor(f32)!",
        "e4m3:tensor(f16)", "e8m0:tensor(f32)", "e2m1:block16(e4m3):tensor(f32)", "p"}) {
    p.attrs.set("p", bad);
    EXPECT_FALSE(infer_types(op(), p).ok()) << bad;
  }
  p.attrs.set("p", int64_t{1});
  EXPECT_FALSE(infer_types(op(), p).ok());
}

TEST(AttentionReference, RoundedWeightsByHand) {
  // Weights 1 and 0.3: 448 * 0.3 = 134.4 lies between the codes 128 and 144. The sum is that of the weights, not of the
  // codes.
  Problem p = problem({1, 1, 2, 1, 1, 1}, kF32);
  p.attrs.set("scale", 1.0);
  p.attrs.set("p", "e4m3:tensor(f32)");
  const std::vector<Dense> in = {{{1, 1, 1, 1}, {1}}, {{1, 2, 1, 1}, {2, 2 + std::log(0.3)}}, {{1, 2, 1, 1}, {4, 8}}};
  EXPECT_NEAR(compute_reference(op(), p, in)[0].v[0], (448 * 4 + 128 * 8) / (448 * 1.3), 1e-14);
}

TEST(AttentionReference, SmallNumbersByHand) {
  // Two keys with scores ln 1 and ln 3 (k = 0 and k = 1 times q = 2 ln 3, scale 1/2): weights 1/4 and 3/4 of the values
  // 4 and 8.
  Problem p = problem({1, 1, 2, 1, 1, 1}, kF32);
  p.attrs.set("scale", 0.5);
  const std::vector<Dense> in = {{{1, 1, 1, 1}, {2 * std::log(3.0)}}, {{1, 2, 1, 1}, {0, 1}}, {{1, 2, 1, 1}, {4, 8}}};
  EXPECT_NEAR(compute_reference(op(), p, in)[0].v[0], 7, 1e-14);
}

TEST(AttentionReference, CausalLooksBackOnly) {
  // Two queries, three keys of equal score: the first query sees two of them, the second all.
  const Problem p = problem({1, 2, 3, 1, 1, 1}, kF32, false, true);
  const std::vector<Dense> in = {{{1, 2, 1, 1}, {0, 0}}, {{1, 3, 1, 1}, {1, 2, 3}}, {{1, 3, 1, 1}, {3, 6, 18}}};
  const Dense y = compute_reference(op(), p, in)[0];
  EXPECT_DOUBLE_EQ(y.v[0], 4.5);
  EXPECT_DOUBLE_EQ(y.v[1], 9);
}

TEST(AttentionErrors, ANegativeScaleIsTheOtherSideOfTheQueries) {
  // Scores are the same for -q and -scale: so are their errors.
  Problem p = problem({1, 3, 5, 2, 2, 4}, kF32);
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<Dense> in;
  for (size_t i = 0; i < 3; ++i) {
    in.push_back({p.in[i].shape, std::vector<double>(static_cast<size_t>(elements(p.in[i].shape)))});
    for (double& x : in[i].v) x = normal(random);
  }
  const Roundings roundings({.accumulator_bits = 24}, Growth::kWorst);
  const Dense y = compute_reference(op(), p, in)[0];
  const std::vector<double> want = attention_errors(p, in, y, roundings);
  p.attrs.set("scale", -p.attrs.number("scale"));
  for (double& x : in[0].v) x = -x;
  const std::vector<double> got = attention_errors(p, in, y, roundings);
  EXPECT_EQ(got, want);
  for (double e : got) EXPECT_GT(e, 0);
}

// Two keys, the second with the weight w: one step of its code where rounding may fall to either side, else nothing but
// the roundings of sums.
TEST(AttentionErrors, ARoundedWeightErrsWhereATieIsNear) {
  Problem p = problem({1, 1, 2, 1, 1, 1}, kF32);
  p.attrs.set("scale", 1.0);
  p.attrs.set("p", "e4m3:tensor(f32)");
  const auto error = [&](double w, Growth growth) {
    const std::vector<Dense> in = {{{1, 1, 1, 1}, {1}}, {{1, 2, 1, 1}, {2, 2 + std::log(w)}}, {{1, 2, 1, 1}, {0, 8}}};
    return attention_errors(p, in, compute_reference(op(), p, in)[0], Roundings({.accumulator_bits = 24}, growth))[0];
  };
  for (const Growth growth : {Growth::kWorst, Growth::kWalk}) {
    const double tie = 136.0 / 448, step = 16.0 * 8 / (448 * (1 + tie));  // between the codes 128 and 144
    EXPECT_NEAR(error(tie, growth), step, 1e-4 * step);
    EXPECT_NEAR(error(tie * (1 + 0x1p-24), growth), step, 1e-4 * step);
    EXPECT_LT(error(tie * 1.001, growth), 1e-4 * step);
    EXPECT_LT(error(tie * 0.999, growth), 1e-4 * step);
    EXPECT_GT(error(tie * 0.999, growth), 0);
  }
}

TEST(AttentionReading, StridesAndBroadcast) {
  const AttentionProblem a = AttentionProblem::of(problem({2, 5, 5, 4, 2, 8}, kF16, true, false, Shape{4, 1, 5}));
  EXPECT_EQ(a.q_strides, Shape({5 * 3 * 32, 3 * 32, 8, 1}));
  EXPECT_EQ(a.bias_strides, Shape({0, 5, 0, 1}));
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_TRUE(a.has_bias);
}

}  // namespace
}  // namespace tessera
