// SPDX-License-Identifier: Apache-2.0
// Lengths that kernels read while they run (attention.h): none, one, odd ones, around every block of keys, all; another
// one for each batch item. Keys, values and bias behind them are NaN. All variants that accept them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "op/reference.h"
#include "ops/attention/attention.h"
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
struct How {
  int64_t fresh = 0;
  bool causal = false;
  std::optional<Shape> bias = {};
  QuantType bias_type = kF32;
  std::optional<QuantType> y = {};
  bool one_length = false;  // for all batch items
  bool swapped = false;     // [batch, heads, tokens, size] in memory
};

Problem problem(const Form& f, const QuantType& t, const How& how = {}) {
  const auto tensor = [&](int64_t tokens, int64_t heads) {
    const Shape shape{f.batch, tokens, heads, f.size};
    return how.swapped ? swapped(shape, t, 1, 2) : gapped(shape, t, t.scaled() ? (16 - f.size % 16) % 16 : 0);
  };
  std::vector<Operand> in = {tensor(f.queries, f.heads), tensor(f.keys, f.kv_heads), tensor(f.keys, f.kv_heads),
                             how.bias ? dense_operand(*how.bias, how.bias_type) : Operand{},
                             dense_operand({how.one_length ? 1 : f.batch}, Element::i32)};
  Attrs attrs = {
      {"scale", 1 / std::sqrt(static_cast<double>(f.size))}, {"causal", int64_t{how.causal}}, {"fresh", how.fresh}};
  if (t.scaled()) attrs.set("p", to_string(t));
  const QuantType y = how.y.value_or(t.scaled() ? kF16 : t);
  Program then;
  if (y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("attention", std::move(in), std::move(attrs), std::move(then), y);
}

std::vector<QuantType> operand_types() { return {kF32, kF16, kBf16, kE4m3PerTensor}; }

// The lengths of the case at hand, one per batch item or one: Adjust is a plain function.
std::vector<int64_t>& lengths() {
  static std::vector<int64_t> numbers;
  return numbers;
}
int64_t length_of(size_t item) { return lengths().size() == 1 ? lengths()[0] : lengths()[item]; }

// Sets the lengths, and makes NaN of everything that they leave out.
void set_lengths(const Problem& p, size_t i, std::vector<double>& numbers) {
  const AttentionProblem a = AttentionProblem::of(p);
  const auto valid = [&](size_t item) { return valid_keys(length_of(item), a.keys, a.fresh); };
  if (i == 4) {
    for (size_t b = 0; b < numbers.size(); ++b) numbers[b] = static_cast<double>(lengths()[b]);
  } else if (i == 1 || i == 2) {
    const auto row = static_cast<size_t>(a.kv_heads * p.in[i].shape[3]), keys = static_cast<size_t>(a.keys);
    for (size_t j = 0; j < numbers.size(); ++j) {
      if (static_cast<int64_t>(j / row % keys) >= valid(j / row / keys).all) numbers[j] = NAN;
    }
  } else if (i == 3 && p.in[3].shape.back() == a.keys) {
    // Columns between the old keys and the new ones, of a bias that each batch item has its own of.
    const size_t items = p.in[3].shape.size() == 4 ? static_cast<size_t>(p.in[3].shape[0]) : 1;
    const size_t keys = static_cast<size_t>(a.keys), of_item = numbers.size() / items;
    for (size_t j = 0; j < numbers.size(); ++j) {
      bool read = items < static_cast<size_t>(a.batch);
      const ValidKeys<int64_t> v = valid(j / of_item);
      const auto column = static_cast<int64_t>(j % keys);
      read = read || column < v.old || column >= a.keys - a.fresh;
      if (!read) numbers[j] = NAN;
    }
  }
}

class AttentionLengths : public ::testing::TestWithParam<const Variant*> {
 protected:
  void SetUp() override { TS_SKIP_WITHOUT_DEVICE(*GetParam()); }
  // With each list of lengths that is made of `some`: batch item b has the b-th from the start on, round and round.
  void run(const Problem& p, const std::vector<int64_t>& some, Values values = Values::kRandom) {
    if (!GetParam()->accepts(p)) return;
    for (size_t first = 0; first < some.size(); ++first) {
      lengths().clear();
      for (int64_t b = 0; b < p.in[4].shape[0]; ++b)
        lengths().push_back(some[(first + static_cast<size_t>(b)) % some.size()]);
      SCOPED_TRACE(cat("lengths from ", lengths()[0], ", fresh ", p.attrs.integer("fresh"), ", causal ",
                       p.attrs.integer("causal")));
      check_variant(*GetParam(), p, first + 1, values, set_lengths);
    }
  }
};

// Decode, prefill into a cache, and a padded prompt, around the blocks of every kernel.
TEST_P(AttentionLengths, AgreesAtEveryLength) {
  const std::vector<int64_t> some = {0, 1, 47, 49, 63, 64, 65, 127, 128, 129, 191, 255, 256, 299, 300};
  for (const QuantType& t : operand_types()) {
    for (const int64_t size : {64, 256}) {
      run(problem({2, 1, 300, 2, 2, size}, t, {.fresh = 1}), some);
      run(problem({2, 9, 300, 2, 1, size}, t, {.fresh = 0}), some);
      run(problem({2, 70, 300, 1, 1, size}, t, {.fresh = 70, .causal = true}), some);
    }
    run(problem({2, 1, 300, 2, 2, 128}, t, {.fresh = 1}), {0, 1, 63, 127, 128, 299});
    run(problem({2, 7, 300, 2, 2, 96}, t, {.fresh = 7, .causal = true}), {0, 1, 121, 122, 293});
  }
}

// Memory stays safe and the result is that of the nearest length.
TEST_P(AttentionLengths, AgreesWhereTheNumberIsNoLength) {
  for (const QuantType& t : operand_types()) {
    run(problem({3, 3, 150, 2, 2, 64}, t, {.fresh = 3}),
        {std::numeric_limits<int32_t>::min(), -1, 148, 150, 151, std::numeric_limits<int32_t>::max()});
  }
}

TEST_P(AttentionLengths, AgreesWithSharedKeys) {
  for (const QuantType& t : operand_types()) {
    for (const bool causal : {false, true}) {
      run(problem({2, 5, 200, 8, 2, 64}, t, {.fresh = 5, .causal = causal}), {0, 59, 124, 195});
      run(problem({2, 1, 200, 8, 1, 256}, t, {.fresh = 1, .causal = causal}), {0, 63, 127, 199});
      run(problem({2, 20, 200, 6, 2, 64}, t, {.fresh = 20, .causal = causal}), {0, 108, 180});  // three share
      run(problem({1, 2, 140, 128, 1, 64}, t, {.fresh = 2, .causal = causal}), {1, 126, 138});
    }
    run(problem({2, 40, 200, 8, 2, 80}, t, {.fresh = 8, .causal = true, .swapped = true}), {0, 30, 32, 120, 192});
  }
}

TEST_P(AttentionLengths, AgreesWithABias) {
  for (const QuantType& t : operand_types()) {
    for (const Shape& bias : {Shape{2, 4, 6, 200}, Shape{2, 1, 1, 200}, Shape{6, 200}, Shape{2, 4, 6, 1}, Shape{1}}) {
      run(problem({2, 6, 200, 4, 2, 64}, t, {.fresh = 6, .bias = bias}), {0, 1, 61, 122, 127, 194});
    }
    run(problem({2, 6, 200, 4, 1, 256}, t,
                {.fresh = 6, .causal = true, .bias = Shape{2, 1, 6, 200}, .bias_type = kF16}),
        {0, 58, 121, 194});
    run(problem({2, 3, 300, 4, 4, 96}, t, {.fresh = 0, .bias = Shape{2, 1, 1, 300}, .bias_type = kBf16}),
        {0, 1, 128, 300});
  }
}

// More queries than keys that any of them may see: the first ones see none.
TEST_P(AttentionLengths, AgreesWhereQueriesSeeNoKey) {
  for (const QuantType& t : operand_types()) {
    for (const int64_t size : {64, 128, 256})
      run(problem({2, 140, 150, 2, 1, size}, t, {.fresh = 0, .causal = true}), {0, 1, 9, 70, 129, 150});
  }
}

TEST_P(AttentionLengths, AgreesWithOneLengthForAll) {
  for (const QuantType& t : operand_types()) {
    run(problem({3, 4, 150, 2, 2, 64}, t, {.fresh = 4, .one_length = true}), {0, 60, 124, 146});
    run(problem({3, 4, 150, 2, 2, 72}, t, {.fresh = 4, .one_length = true, .swapped = true}), {0, 60, 124, 146},
        Values::kExtremes);
  }
}

TEST_P(AttentionLengths, AgreesForEveryResultType) {
  for (const QuantType& t : operand_types()) {
    for (const QuantType& y : {kF16, kBf16, kE4m3PerTensor})
      run(problem({2, 5, 140, 3, 3, 64}, t, {.fresh = 5, .y = y}), {0, 100, 135});
  }
}

// Random numbers for the lengths too, and results that are mutated.
TEST_P(AttentionLengths, AgreesOnRandom) {
  uint64_t seed = 1;
  for (const QuantType& t : operand_types()) {
    for (const int64_t fresh : {0, 1, 30}) {
      for (const bool causal : {false, true}) {
        check_variant(*GetParam(), problem({4, 30, 290, 4, 2, 64}, t, {.fresh = fresh, .causal = causal}), seed++,
                      Values::kRandom);
      }
    }
  }
}

// Many tiles for each SM, each with its own length: a block goes over some of one block of keys and some of several.
TEST_P(AttentionLengths, AgreesOverManyTiles) {
  for (const QuantType& t : operand_types()) {
    run(problem({60, 20, 300, 5, 5, 32}, t, {.fresh = 20}), {0, 200, 108});
    run(problem({40, 130, 300, 4, 4, 32}, t, {.fresh = 130, .causal = true}), {0, 150});
  }
}

TEST_P(AttentionLengths, Sanitize) {
  for (const QuantType& t : operand_types()) {
    run(problem({2, 7, 140, 4, 1, 72}, t, {.fresh = 7, .causal = true}), {0, 121, 133});
    run(problem({1, 9, 140, 2, 2, 256}, t, {.fresh = 9, .bias = Shape{140}}), {3});
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, AttentionLengths, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const QuantType& t : operand_types()) {
    all.push_back(problem({2, 1, 90, 4, 2, 64}, t, {.fresh = 1}));
    all.push_back(problem({2, 12, 190, 2, 2, 64}, t, {.fresh = 12, .causal = true}));
    all.push_back(problem({2, 5, 150, 2, 1, 256}, t, {.fresh = 5, .bias = Shape{2, 1, 1, 150}}));
    all.push_back(problem({2, 9, 150, 2, 2, 128}, t));
  }
  return all;
}

// What the judges say of kernels that take another length, with a device or not.
TEST(AttentionLengthsPower, WrongLengthsAreCaught) {
  lengths() = {71, 40};
  expect_power_of_all(op(), problems(), [](const Problem&, size_t i, std::vector<double>& numbers) {
    if (i == 4) numbers = {71, 40};
  });
}

// Emulated kernels and the definition differ by roundings alone (e4m3: weights against another maximum), NaN or not.
TEST(AttentionLengthsJudge, ExpectsWhatTheReferenceGives) {
  int looked_at = 0;
  for (const Variant* v : op().variants) {
    for (const Problem& p : problems()) {
      if (!v->accepts(p)) continue;
      for (const std::vector<int64_t>& some : {std::vector<int64_t>{0, 71}, {64, 1}, {1000, 30}}) {
        lengths() = some;
        const Case c = make_case(p, 7, Values::kRandom, set_lengths);
        SCOPED_TRACE(cat(v->name, " with ", some[0], ": ", c.text()));
        const std::vector<double> got = judge_of(*v, c).middle(0), &exact = c.exact[0].v;
        double off = 0, size = 0;
        for (size_t i = 0; i < got.size(); ++i)
          off += (got[i] - exact[i]) * (got[i] - exact[i]), size += exact[i] * exact[i];
        EXPECT_LE(std::sqrt(off), 0.06 * std::sqrt(size));
        ++looked_at;
      }
    }
  }
  EXPECT_GT(looked_at, 60);
}

TEST(AttentionLengthsContract, AllButTheShortKernelTakeThem) {
  for (const Variant* v : op().variants) {
    int taken = 0;
    for (const Problem& p : problems()) {
      Problem without = p;
      without.in.pop_back();
      without.attrs.set("fresh", int64_t{0});
      const bool takes = static_cast<bool>(v->accepts(p));
      taken += takes;
      if (std::string_view(v->name) == "attention/sm90_short") {
        EXPECT_FALSE(takes);
      } else {
        EXPECT_EQ(takes, static_cast<bool>(v->accepts(without))) << v->name;
      }
    }
    EXPECT_EQ(taken > 0, std::string_view(v->name) != "attention/sm90_short") << v->name;
  }
  const Verdict refused = find_variant("attention/sm90_short")->accepts(problem({2, 9, 150, 2, 2, 128}, kF16));
  EXPECT_EQ(refused.refusal.rfind("lengths: ", 0), 0U) << refused.refusal;
}

TEST(AttentionLengthsRule, ShapesAndTypes) {
  Problem p = problem({2, 5, 40, 2, 2, 8}, kF16, {.fresh = 5});
  const auto fits = [&] { return infer_types(op(), p).ok(); };
  EXPECT_TRUE(fits());
  for (const Shape& good : {Shape{1}, Shape{2}}) {
    p.in[4] = dense_operand(good, Element::i32);
    EXPECT_TRUE(fits());
  }
  for (const Shape& bad : {Shape{}, Shape{3}, Shape{0}, Shape{2, 1}}) {
    p.in[4] = dense_operand(bad, Element::i32);
    EXPECT_FALSE(fits()) << to_string(bad);
  }
  for (const Element bad : {Element::i64, Element::f32, Element::u8}) {
    p.in[4] = dense_operand({2}, bad);
    EXPECT_FALSE(fits()) << info(bad).name;
  }
  p.in[4] = dense_operand({2}, Element::i32);
  for (const int64_t bad : {-1, 41}) {
    p.attrs.set("fresh", bad);
    EXPECT_FALSE(fits()) << bad;
  }
  p.attrs.set("fresh", int64_t{40});
  EXPECT_TRUE(fits());
  p.in.pop_back();
  EXPECT_FALSE(fits()) << "fresh without lengths";
}

// One old key and one new one of four that there is memory for: scores 0, values 4 and 8, the rest NaN.
TEST(AttentionLengthsReference, SmallNumbersByHand) {
  Problem p = problem({1, 1, 4, 1, 1, 1}, kF32, {.fresh = 1, .bias = Shape{4}});
  const auto y = [&](double length, const std::vector<double>& v, const std::vector<double>& bias) {
    const std::vector<Dense> in = {
        {{1, 1, 1, 1}, {1}}, {{1, 4, 1, 1}, {0, 0, 0, 0}}, {{1, 4, 1, 1}, v}, {{4}, bias}, {{1}, {length}}};
    return compute_reference(op(), p, in)[0].v[0];
  };
  EXPECT_DOUBLE_EQ(y(1, {4, 8, NAN, NAN}, {0, NAN, NAN, 0}), 6);
  EXPECT_NEAR(y(1, {4, 8, NAN, NAN}, {0, NAN, NAN, std::log(3.0)}), 7, 1e-6);  // the new key's column is the last
  EXPECT_DOUBLE_EQ(y(0, {4, NAN, NAN, NAN}, {NAN, NAN, NAN, 5}), 4);
  EXPECT_DOUBLE_EQ(y(-7, {4, NAN, NAN, NAN}, {NAN, NAN, NAN, 5}), 4);
  EXPECT_DOUBLE_EQ(y(3, {1, 2, 3, 6}, {0, 0, 0, 0}), 3);
  EXPECT_DOUBLE_EQ(y(1000, {1, 2, 3, 6}, {0, 0, 0, 0}), 3);
  p.attrs.set("fresh", int64_t{0});
  EXPECT_DOUBLE_EQ(y(0, {NAN, NAN, NAN, NAN}, {NAN, NAN, NAN, NAN}), 0);
  EXPECT_DOUBLE_EQ(y(2, {4, 8, NAN, NAN}, {0, 0, NAN, NAN}), 6);
}

TEST(AttentionLengthsReference, NewQueriesSeeTheOldKeysAndThemselves) {
  // Two old keys, two new ones, memory for five; all scores are equal.
  const Problem p = problem({1, 2, 5, 1, 1, 1}, kF32, {.fresh = 2, .causal = true});
  const std::vector<Dense> in = {
      {{1, 2, 1, 1}, {0, 0}}, {{1, 5, 1, 1}, {1, 2, 3, 4, NAN}}, {{1, 5, 1, 1}, {3, 6, 18, 1, NAN}}, {}, {{1}, {2}}};
  const Dense y = compute_reference(op(), p, in)[0];
  EXPECT_DOUBLE_EQ(y.v[0], 9);
  EXPECT_DOUBLE_EQ(y.v[1], 7);
}

}  // namespace
}  // namespace tessera
