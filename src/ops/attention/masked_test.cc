// SPDX-License-Identifier: Apache-2.0
// Rows whose keys are all masked (attention.h), by each number that models mask with, in every type of operand and
// bias. All variants that accept them; and what their judges say of kernels that get such rows wrong, with a device or
// not.
#include <cmath>
#include <limits>

#include "op/reference.h"
#include "ops/attention/attention.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("attention"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;

// What masks are made of, and what f32 leaves of scores below it.
enum class Left : uint8_t { kNothing, kScores, kNoKey };
struct Mask {
  const char* name;
  double number;
  QuantType bias;
  Left left;
  Adjust adjust;
};

constexpr double kLowest = std::numeric_limits<float>::lowest(), kLowestBf16 = -0x1.fep127, kLowestF16 = -65504;
constexpr int64_t kBatch = 3, kQueries = 20;

// Batch item 0 sees every key, item 1 half of them, item 2 none. Scores within 32, as those of -1e9 must be to vanish.
template <int kIndex>
void hide(const Problem& p, size_t i, std::vector<double>& numbers);

// Minus infinity in f32 only: encoding to 16 bits saturates.
const Mask kMasks[] = {
    {"lowest f32", kLowest, kF32, Left::kNothing, hide<0>},
    {"lowest bf16", kLowestBf16, kBf16, Left::kNothing, hide<1>},
    {"lowest bf16 in f32", kLowestBf16, kF32, Left::kNothing, hide<2>},
    {"-1e30", -1e30, kF32, Left::kNothing, hide<3>},
    {"-1e9", -1e9, kF32, Left::kNothing, hide<4>},
    {"-1e9 in bf16", -1e9, kBf16, Left::kNothing, hide<5>},
    {"lowest f16", kLowestF16, kF16, Left::kScores, hide<6>},
    {"lowest f16 in f32", kLowestF16, kF32, Left::kScores, hide<7>},
    {"-1e4", -1e4, kF16, Left::kScores, hide<8>},
    {"-inf", -INFINITY, kF32, Left::kNoKey, hide<9>},
};

template <int kIndex>
void hide(const Problem&, size_t i, std::vector<double>& numbers) {
  if (i != 3) return;
  const size_t keys = numbers.size() / kBatch;
  for (size_t j = 0; j < numbers.size(); ++j) {
    const size_t item = j / keys, key = j % keys;
    numbers[j] = item == 0 || (item == 1 && key % 2 == 0) ? 0 : kMasks[kIndex].number;
  }
}

Problem problem(const QuantType& t, const QuantType& bias, int64_t keys, int64_t size = 64, bool causal = false) {
  const int64_t heads = 2;
  std::vector<Operand> in = {dense_operand({kBatch, causal ? keys : kQueries, heads, size}, t),
                             dense_operand({kBatch, keys, heads, size}, t),
                             dense_operand({kBatch, keys, heads, size}, t), dense_operand({kBatch, 1, 1, keys}, bias)};
  Attrs attrs = {{"scale", 1 / std::sqrt(static_cast<double>(size))}, {"causal", int64_t{causal}}};
  if (t.scaled()) attrs.set("p", to_string(t));
  return make_problem("attention", std::move(in), std::move(attrs), {}, t.scaled() ? kF16 : t);
}

// Few keys and several blocks of them; a wide head, whose keys are split; a causal mask beside the padding.
std::vector<Problem> problems(const QuantType& bias) {
  std::vector<Problem> all;
  for (const QuantType& t : {kF32, kF16, kBf16, kE4m3PerTensor}) {
    for (const int64_t keys : {1, 17, 300}) all.push_back(problem(t, bias, keys));
    all.push_back(problem(t, bias, 300, 256));
    all.push_back(problem(t, bias, 140, 64, /*causal=*/true));
  }
  return all;
}

class AttentionMasked : public ::testing::TestWithParam<const Variant*> {};

TEST_P(AttentionMasked, AgreesWhereAllKeysAreMasked) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const Mask& mask : kMasks) {
    SCOPED_TRACE(mask.name);
    uint64_t seed = 1;
    for (Problem p : problems(mask.bias)) {
      for (const std::string& config :
           GetParam()->accepts(p) ? configs_of(*GetParam(), p) : std::vector<std::string>{""}) {
        p.config = config;
        check_variant(*GetParam(), p, seed, Values::kRandom, mask.adjust);
      }
      ++seed;
    }
  }
}

// Two masks in one row: keys under the higher number share the weight, however small both are.
TEST_P(AttentionMasked, AgreesWhereMasksDiffer) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const Problem& p : problems(kF32)) {
    check_variant(*GetParam(), p, 1, Values::kRandom, [](const Problem&, size_t i, std::vector<double>& numbers) {
      if (i != 3) return;
      const size_t keys = numbers.size() / kBatch;
      const double higher[] = {kLowest / 2, -1e9, kLowest}, lower[] = {kLowest, 2 * -1e9, -INFINITY};
      for (size_t j = 0; j < numbers.size(); ++j) numbers[j] = (j % keys % 3 == 0 ? higher : lower)[j / keys];
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, AttentionMasked, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

// The last batch item as wrong kernels would give it: zeros, as where the lowest number overflows; what the scores say,
// as where the sum is not one of f32; the mean, as where masks are told from numbers.
template <int kWrong>
void hide_wrongly(const Problem&, size_t i, std::vector<double>& numbers) {
  if (i == 3) std::fill(numbers.begin(), numbers.end(), kWrong == 0 ? -INFINITY : kWrong == 1 ? 0 : kLowest);
}
struct Wrong {
  const char* name;
  Left right_for;
  Adjust adjust;
};
const Wrong kWrong[] = {{"zeros", Left::kNoKey, hide_wrongly<0>},
                        {"the scores", Left::kScores, hide_wrongly<1>},
                        {"the mean", Left::kNothing, hide_wrongly<2>}};

// What this variant would give for the case.
std::vector<double> given(const Variant& variant, const Case& c) { return judge_of(variant, c).middle(0); }

bool judged_right(const Judge& judge, const Case& c, const std::vector<double>& numbers) {
  const Operand& y = c.problem.out[0];
  HostTensor t{.desc = y,
               .data = Buffer(static_cast<size_t>(packed_bytes(y.type.element, elements(y.shape)))),
               .scale = {},
               .scale2 = {}};
  encode({y.shape, numbers}, t.view());
  const TensorView view = t.view();
  return judge.of({&view, 1}).ok();
}

void expect_wrong_rows_caught(const Variant& variant, const Problem& p, const Mask& mask) {
  const Case c = make_case(p, 7, Values::kRandom, mask.adjust);
  SCOPED_TRACE(cat(variant.name, " under ", mask.name, ": ", c.text()));
  const Judge judge = judge_of(variant, c);
  const std::vector<double> right = judge.middle(0), &exact = c.exact[0].v;
  const size_t last = right.size() / kBatch * 2;
  // Emulated kernels round weights as the hardware does (e4m3: against another maximum); no more lies between them and
  // the definition.
  double off = 0, size = 0;
  for (size_t i = last; i < right.size(); ++i)
    off += (right[i] - exact[i]) * (right[i] - exact[i]), size += exact[i] * exact[i];
  EXPECT_LE(std::sqrt(off), 0.06 * std::sqrt(size));
  EXPECT_TRUE(judged_right(judge, c, right));
  for (const Wrong& wrong : kWrong) {
    if (mask.left == wrong.right_for) continue;
    Problem other = p;
    other.in[3].type = kF32;
    const Case otherwise = make_case(other, 7, Values::kRandom, wrong.adjust);
    ASSERT_EQ(otherwise.numbers[1].v, c.numbers[1].v);
    std::vector<double> mixed = right;
    const std::vector<double> rows = given(variant, otherwise);
    std::copy(rows.begin() + static_cast<std::ptrdiff_t>(last), rows.end(),
              mixed.begin() + static_cast<std::ptrdiff_t>(last));
    EXPECT_FALSE(judged_right(judge, c, mixed)) << wrong.name;
  }
}

TEST(AttentionMaskedPower, WrongRowsAreCaught) {
  int looked_at = 0;
  for (const Variant* variant : op().variants) {
    for (const Mask& mask : kMasks) {
      for (const Problem& p : problems(mask.bias)) {
        if (p.in[1].shape[1] == 1 || !variant->accepts(p)) continue;
        expect_wrong_rows_caught(*variant, p, mask);
        ++looked_at;
      }
    }
  }
  EXPECT_GT(looked_at, 300);
}

TEST(AttentionMaskedReference, SmallNumbersByHand) {
  // One query, two keys with scores 1 and 3 and values 4 and 8.
  Problem p = problem(kF32, kF32, 2, 1);
  p.attrs.set("scale", 1.0);
  p.in[0].shape = p.out[0].shape = {1, 1, 1, 1}, p.in[1].shape = p.in[2].shape = {1, 2, 1, 1}, p.in[3].shape = {2};
  for (Operand* o : {&p.in[0], &p.in[1], &p.in[2], &p.in[3], &p.out[0]}) *o = dense_operand(o->shape, kF32);
  const auto y = [&](double first, double second) {
    const std::vector<Dense> in = {
        {{1, 1, 1, 1}, {1}}, {{1, 2, 1, 1}, {1, 3}}, {{1, 2, 1, 1}, {4, 8}}, {{2}, {first, second}}};
    return compute_reference(op(), p, in)[0].v[0];
  };
  const double follows = 4 + 4 / (1 + std::exp(-2.0));
  EXPECT_NEAR(y(0, 0), follows, 1e-12);
  EXPECT_EQ(y(kLowest, kLowest), 6);
  EXPECT_EQ(y(kLowestBf16, kLowestBf16), 6);
  EXPECT_EQ(y(-1e9, -1e9), 6);
  EXPECT_NEAR(y(kLowestF16, kLowestF16), follows, 1e-12);  // 1 and 3 are whole steps of 2^-8
  EXPECT_EQ(y(-INFINITY, -INFINITY), 0);
  EXPECT_EQ(y(kLowest, -INFINITY), 4);
  EXPECT_EQ(y(kLowest, kLowest / 2), 8);
  EXPECT_EQ(y(2 * kLowest, 2 * kLowest), 0);  // two masks: f32 has no such number
}

// A score near the half of a step of f32 at the mask may vanish or count for a whole step.
TEST(AttentionMaskedErrors, KnowWhereRoundingDecides) {
  Problem p = problem(kF32, kF32, 2, 1);
  p.attrs.set("scale", 1.0);
  p.in[0].shape = p.out[0].shape = {1, 1, 1, 1}, p.in[1].shape = p.in[2].shape = {1, 2, 1, 1}, p.in[3].shape = {2};
  for (Operand* o : {&p.in[0], &p.in[1], &p.in[2], &p.in[3], &p.out[0]}) *o = dense_operand(o->shape, kF32);
  const auto error = [&](double score) {
    const std::vector<Dense> in = {
        {{1, 1, 1, 1}, {1}}, {{1, 2, 1, 1}, {0, score}}, {{1, 2, 1, 1}, {4, 8}}, {{2}, {-1e9, -1e9}}};
    return attention_errors(p, in, compute_reference(op(), p, in)[0], Roundings({.accumulator_bits = 24}))[0];
  };
  EXPECT_LT(error(31.9), 1e-4);
  EXPECT_LT(error(-31.9), 1e-4);
  EXPECT_LT(error(40), 1e-3);
  EXPECT_GT(error(32), 1);
}

}  // namespace
}  // namespace tessera
