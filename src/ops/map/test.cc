// SPDX-License-Identifier: Apache-2.0
#include "ops/map/map.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "op/reference.h"
#include "ops/ops.h"
#include "steps/unary.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("map"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16, kI64 = Element::i64,
                kI32 = Element::i32, kU8 = Element::u8;

constexpr const char* kUnary[] = {
#define TS_UNARY(name) #name,
#include "ir/unary.inc"
#undef TS_UNARY
};
constexpr const char* kArithmetic[] = {"add", "sub", "mul", "div", "pow", "min", "max", "mod"};
constexpr const char* kTruths[] = {"equal", "less", "less_equal", "greater", "greater_equal", "and", "or"};

Problem problem(const std::string& fn, std::vector<Operand> in, std::optional<QuantType> y = {}) {
  return make_problem("map", std::move(in), {{"fn", fn}}, {}, y);
}

// Arguments where the function is defined and f32 does not overflow.
void inside_domain(const Problem& p, size_t i, std::vector<double>& numbers) {
  const std::string fn = p.attrs.word("fn");
  for (double& v : numbers) {
    if (i == 0 && (fn == "log" || fn == "sqrt" || fn == "rsqrt" || fn == "pow")) v = std::fabs(v) + 0.01;
    if (i == 0 && fn == "reciprocal") v = std::copysign(std::fabs(v) + 0.01, v);
    if (i == 1 && fn == "div") v = std::copysign(std::fabs(v) + 0.01, v);
    if (i == 1 && fn == "pow") v = std::fmod(v, 3.0);
    if (fn == "mod" && i == 1 && info(p.in[1].type.element).kind == ElementKind::kFloat)
      v = std::copysign(std::fabs(v) + 0.5, v);
    if (fn == "exp") v = std::fmod(v, 60.0);
  }
}

std::vector<Problem> unary_problems() {
  std::vector<Problem> all;
  for (const char* fn : kUnary) {
    for (const QuantType& t : {kF32, kF16, kBf16}) {
      for (const Shape& s : {Shape{1}, Shape{3, 5}, Shape{2, 513}}) all.push_back(problem(fn, {dense_operand(s, t)}));
    }
  }
  all.push_back(problem("gelu_erf", {dense_operand({5, 64}, kF16)}, kE4m3PerTensor));
  all.push_back(problem("relu", {swapped({4, 9, 6}, kF32, 0, 2)}));
  all.push_back(problem("identity", {dense_operand({}, kF32)}));
  for (const char* fn : {"neg", "abs", "logical_not"}) all.push_back(problem(fn, {dense_operand({3, 7}, kI64)}));
  return all;
}

std::vector<Problem> binary_problems() {
  std::vector<Problem> all;
  const auto add_forms = [&](const std::string& fn, const QuantType& t) {
    all.push_back(problem(fn, {dense_operand({1}, t), dense_operand({1}, t)}));
    all.push_back(problem(fn, {dense_operand({3, 65}, t), dense_operand({3, 65}, t)}));
    all.push_back(problem(fn, {dense_operand({4, 17, 48}, t), dense_operand({48}, t)}));
    all.push_back(problem(fn, {dense_operand({4, 1, 33}, t), dense_operand({5, 1}, t)}));
    all.push_back(problem(fn, {dense_operand({}, t), dense_operand({2, 7}, t)}));
  };
  for (const char* fn : kArithmetic) {
    for (const QuantType& t : {kF32, kF16, kBf16, kI64, kI32}) add_forms(fn, t);
  }
  for (const char* fn : kTruths) {
    for (const QuantType& t : {kF32, kF16, kI64, kU8}) add_forms(fn, t);
  }
  all.push_back(problem("add", {swapped({7, 40}, kF16, 0, 1), gapped({7, 40}, kF16, 8)}));
  all.push_back(problem("add", {dense_operand({5, 64}, kF32), dense_operand({5, 64}, kF32)}, kE4m3PerTensor));
  all.push_back(problem("add", {dense_operand({5, 64}, kF32), dense_operand({5, 64}, kF32)}, kF16));
  all.push_back(problem("mul", {dense_operand({0, 3}, kF32), dense_operand({3}, kF32)}));
  for (const QuantType& t : {kF32, kF16, kI64}) {
    all.push_back(problem("where", {dense_operand({3, 17}, kU8), dense_operand({3, 17}, t), dense_operand({}, t)}));
    all.push_back(problem("where", {dense_operand({17}, kU8), dense_operand({2, 1}, t), dense_operand({4, 1, 1}, t)}));
  }
  return all;
}

void some_equal(const Problem& p, size_t i, std::vector<double>& numbers) {
  inside_domain(p, i, numbers);
  const std::string fn = p.attrs.word("fn");
  if (fn == "where" && i == 0) {
    for (double& v : numbers) v = std::fmod(v, 2.0);
  } else if (std::find(std::begin(kTruths), std::end(kTruths), fn) != std::end(kTruths)) {
    for (double& v : numbers) v = std::trunc(std::fmod(v, 3.0));  // -2 ... 2: comparisons of both outcomes
    if (p.in[i].type.element == Element::u8) {
      for (double& v : numbers) v = std::fabs(v);
    }
  }
}

// What masks are made of: -Inf, the lowest number, 0, and sums of them, which f32 does not hold.
void of_masks(const Problem& p, size_t i, std::vector<double>& numbers) {
  if (p.in[i].type.element == Element::u8) return some_equal(p, i, numbers);
  const double lowest = -info(p.in[i].type.element).max;
  for (size_t n = 0; n < numbers.size(); ++n)
    numbers[n] = n % 4 == 0 ? -INFINITY : n % 4 == 1 ? lowest : n % 4 == 2 ? 0 : numbers[n];
}

class MapVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values, Adjust adjust = some_equal) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values, adjust);
  }
};

TEST_P(MapVariant, UnaryAgreesOnRandom) { run(unary_problems(), Values::kRandom); }
TEST_P(MapVariant, UnaryAgreesOnZeros) { run(unary_problems(), Values::kZeros); }
TEST_P(MapVariant, UnaryAgreesOnExtremes) { run(unary_problems(), Values::kExtremes); }
TEST_P(MapVariant, BinaryAgreesOnRandom) { run(binary_problems(), Values::kRandom); }
TEST_P(MapVariant, BinaryAgreesOnZeros) { run(binary_problems(), Values::kZeros); }
TEST_P(MapVariant, BinaryAgreesOnExtremes) { run(binary_problems(), Values::kExtremes); }
TEST_P(MapVariant, AgreesOnMasks) {
  std::vector<Problem> list;
  for (const QuantType& t : {kF32, kF16, kBf16}) {
    list.push_back(problem("add", {dense_operand({5, 8}, t), dense_operand({8}, t)}));
    list.push_back(
        problem("where", {dense_operand({3, 16}, kU8), dense_operand({3, 16}, t), dense_operand({3, 16}, t)}));
  }
  run(list, Values::kRandom, of_masks);
}
TEST_P(MapVariant, AgreesOnRealShapes) {
  run({problem("add", {dense_operand({8, 197, 768}, kF16), dense_operand({1, 197, 768}, kF16)}),
       problem("gelu_erf", {dense_operand({197, 3072}, kF16)}),
       problem("mul", {dense_operand({2, 197, 768}, kF32), dense_operand({768}, kF32)})},
      Values::kRandom);
}
TEST_P(MapVariant, Sanitize) {
  run({problem("add", {dense_operand({3, 17, 48}, kF16), dense_operand({48}, kF16)}),
       problem("gelu_erf", {dense_operand({3, 513}, kF32)}),
       problem("where", {dense_operand({17}, kU8), dense_operand({2, 1}, kF16), dense_operand({4, 1, 1}, kF16)})},
      Values::kRandom);
}
INSTANTIATE_TEST_SUITE_P(Variants, MapVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(MapContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), unary_problems()); }

Result<std::vector<Type>> infer(const std::string& fn, std::vector<Type> in) {
  Problem p{.op = "map", .in = {}, .out = {}, .attrs = {{"fn", fn}}};
  for (const Type& t : in) p.in.push_back(dense_operand(t.shape, t.quant));
  return infer_types(op(), p);
}

TEST(MapRule, BroadcastsAsNumpyDoes) {
  EXPECT_EQ((*infer("add", {{{2, 3, 4}, kF16}, {{4}, kF16}}))[0], (Type{{2, 3, 4}, kF16}));
  EXPECT_EQ((*infer("add", {{{3, 1}, kF16}, {{2, 1, 4}, kF16}}))[0].shape, Shape({2, 3, 4}));
  EXPECT_EQ((*infer("add", {{{}, kF16}, {{}, kF16}}))[0].shape, Shape{});
  EXPECT_EQ((*infer("add", {{{1}, kF16}, {{0}, kF16}}))[0].shape, Shape({0}));
  EXPECT_FALSE(infer("add", {{{2, 3}, kF16}, {{2}, kF16}}).ok());
}

TEST(MapRule, ResultTypes) {
  EXPECT_EQ((*infer("less", {{{2}, kF16}, {{2}, kF16}}))[0].quant, kU8);
  EXPECT_EQ((*infer("and", {{{2}, kU8}, {{2}, kU8}}))[0].quant, kU8);
  EXPECT_EQ((*infer("where", {{{2}, kU8}, {{2}, kF16}, {{1}, kF16}}))[0].quant, kF16);
  EXPECT_EQ((*infer("gelu_erf", {{{2}, kBf16}}))[0].quant, kBf16);
  EXPECT_EQ((*infer("add", {{{2}, kE4m3PerTensor}, {{2}, kF16}}))[0].quant, kF32);
  EXPECT_FALSE(infer("add", {{{2}, kF16}, {{2}, kI64}}).ok());
  EXPECT_FALSE(infer("add", {{{2}, kF16}}).ok());
  EXPECT_FALSE(infer("neg", {{{2}, kF16}, {{2}, kF16}}).ok());
  EXPECT_FALSE(infer("frobnicate", {{{2}, kF16}}).ok());
}

TEST(MapReading, MergesAxesThatAllOperandsAllow) {
  const MapProblem m =
      MapProblem::of(problem("add", {dense_operand({4, 17, 48}, kF32), dense_operand({48}, kF32)})).merged();
  EXPECT_EQ(m.shape, Shape({68, 48}));
  EXPECT_EQ(m.strides[0], Shape({48, 1}));
  EXPECT_EQ(m.strides[1], Shape({0, 1}));
  const MapProblem s = MapProblem::of(problem("add", {dense_operand({2, 3}, kF32), dense_operand({}, kF32)})).merged();
  EXPECT_EQ(s.shape, Shape({6}));
  EXPECT_EQ(s.strides[1], Shape({0}));
}

double binary(const std::string& fn, double a, double b, const QuantType& t) {
  const std::vector<Dense> in = {{{}, {a}}, {{}, {b}}};
  return compute_reference(op(), problem(fn, {dense_operand({}, t), dense_operand({}, t)}), in)[0].v[0];
}

TEST(MapReference, IntegersDivideTowardsZeroAndModTakesTheDivisorsSign) {
  EXPECT_EQ(binary("div", -7, 2, kI64), -3);
  EXPECT_EQ(binary("div", 7, -2, kI64), -3);
  EXPECT_EQ(binary("div", 7, 0, kI64), 0);
  EXPECT_EQ(binary("div", -7, 2, kF32), -3.5);
  EXPECT_EQ(binary("mod", -7, 3, kI64), 2);
  EXPECT_EQ(binary("mod", 7, -3, kI64), -2);
  EXPECT_EQ(binary("mod", 6, 3, kI64), 0);
  EXPECT_EQ(binary("mod", 6, 0, kI64), 0);
  EXPECT_EQ(binary("mod", -7, 3, kF32), -1);
}

TEST(MapReference, NaNGoesThroughMinAndMax) {
  for (const char* fn : {"min", "max"}) {
    EXPECT_TRUE(std::isnan(binary(fn, NAN, 1, kF32)));
    EXPECT_TRUE(std::isnan(binary(fn, 1, NAN, kF32)));
  }
  EXPECT_EQ(binary("min", 2, -1, kF32), -1);
  EXPECT_EQ(binary("max", 2, -1, kF32), 2);
}

TEST(MapReference, UnaryByHand) {
  EXPECT_EQ(apply(Unary::round, 2.5), 2);
  EXPECT_EQ(apply(Unary::round, -3.5), -4);
  EXPECT_EQ(apply(Unary::logical_not, 0), 1);
  EXPECT_EQ(apply(Unary::logical_not, 3), 0);
  EXPECT_EQ(apply(Unary::relu, -2), 0);
  EXPECT_DOUBLE_EQ(apply(Unary::rsqrt, 16), 0.25);
  EXPECT_NEAR(apply(Unary::sigmoid, std::log(3.0)), 0.75, 1e-15);
  EXPECT_NEAR(apply(Unary::silu, std::log(3.0)), 0.75 * std::log(3.0), 1e-15);
  EXPECT_NEAR(apply(Unary::gelu_erf, 1), 0.8413447460685429, 1e-15);  // Phi(1)
  EXPECT_NEAR(apply(Unary::gelu_tanh, 1), 0.8411919906082768, 1e-15);
  EXPECT_NEAR(apply(Unary::gelu_quick, 1), 1 / (1 + std::exp(-1.702)), 1e-15);
  EXPECT_NEAR(apply(Unary::gelu_erf, -8) / -4.976769e-15, 1, 1e-6);  // keeps its digits far out: -8 Phi(-8)
}

}  // namespace
}  // namespace tessera
