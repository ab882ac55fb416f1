// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("reduce"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16, kI64 = Element::i64;
constexpr const char* kFunctions[] = {"mean", "sum", "max", "min", "sum_squares"};

Problem problem(const char* fn, Operand x, std::optional<QuantType> y = {}) {
  return make_problem("reduce", {std::move(x)}, {{"fn", std::string(fn)}}, {}, y);
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const char* fn : kFunctions) {
    for (const QuantType& t : {kF32, kF16, kBf16}) {
      for (const Shape& s :
           {Shape{1}, Shape{1, 1}, Shape{3, 5}, Shape{2, 3, 31}, Shape{5, 257}, Shape{4, 1024}, Shape{33, 7}})
        all.push_back(problem(fn, dense_operand(s, t)));
      all.push_back(problem(fn, swapped({2, 48, 13}, t, 1, 2)));  // a middle axis: results are contiguous in x
      all.push_back(problem(fn, swapped({6, 4, 10}, t, 0, 1)));
      all.push_back(problem(fn, swapped({17, 3, 9}, t, 0, 2)));  // the first axis
      all.push_back(problem(fn, gapped({4, 9, 20}, t, 12)));
    }
    all.push_back(problem(fn, dense_operand({3, 64}, kF16), kF32));
    all.push_back(problem(fn, dense_operand({5, 9}, kI64)));
    all.push_back(problem(fn, swapped({2, 8, 3}, kI64, 1, 2)));
    all.push_back(problem(fn, dense_operand({2, 7}, Element::u8)));
  }
  return all;
}

class ReduceVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values);
  }
};

TEST_P(ReduceVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(ReduceVariant, AgreesOnZeros) { run(problems(), Values::kZeros); }
TEST_P(ReduceVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
TEST_P(ReduceVariant, AgreesOnRealShapes) {
  run({problem("mean", swapped({8, 768, 197}, kF16, 1, 2)), problem("mean", swapped({2, 768, 196}, kF32, 1, 2)),
       problem("sum", dense_operand({2, 5000}, kF32)), problem("max", dense_operand({197, 1000}, kF16))},
      Values::kRandom);
}
TEST_P(ReduceVariant, Sanitize) {
  run({problem("mean", swapped({2, 768, 13}, kF16, 1, 2)), problem("sum", dense_operand({3, 1000}, kF32)),
       problem("max", dense_operand({5, 7}, kF16))},
      Values::kRandom);
}
INSTANTIATE_TEST_SUITE_P(Variants, ReduceVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(ReduceContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(ReduceRule, DropsTheLastAxis) {
  const auto infer = [](const Shape& x, const char* fn) {
    return infer_types(
        op(), Problem{.op = "reduce", .in = {dense_operand(x, kF16)}, .out = {}, .attrs = {{"fn", std::string(fn)}}});
  };
  EXPECT_EQ((*infer({2, 3, 8}, "mean"))[0], (Type{{2, 3}, kF16}));
  EXPECT_EQ((*infer({8}, "sum"))[0].shape, Shape{});
  EXPECT_FALSE(infer({8}, "median").ok());
  EXPECT_FALSE(infer({}, "sum").ok());
  EXPECT_FALSE(infer({2, 0}, "max").ok());
  EXPECT_TRUE(infer({2, 0}, "sum").ok());
}

TEST(ReduceReference, SmallNumbersByHand) {
  const std::vector<Dense> in = {{{2, 3}, {1, 2, 6, -1, 0, -5}}};
  const std::vector<std::vector<double>> want = {{3, -2}, {9, -6}, {6, 0}, {1, -5}, {41, 26}};
  for (size_t f = 0; f < std::size(kFunctions); ++f) {
    EXPECT_EQ(compute_reference(op(), problem(kFunctions[f], dense_operand({2, 3}, kF32)), in)[0].v, want[f])
        << kFunctions[f];
  }
  const std::vector<Dense> odd = {{{1, 2}, {-4, -3}}};
  EXPECT_EQ(compute_reference(op(), problem("mean", dense_operand({1, 2}, kI64)), odd)[0].v[0], -3);  // towards zero
}

}  // namespace
}  // namespace tessera
