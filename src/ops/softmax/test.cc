// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax/softmax.h"

#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/ops.h"
#include "testing/mutations.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("softmax"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;

std::vector<Problem> problems() {
  const Shape shapes[] = {{1},      {1, 1},   {3, 2},   {2, 3, 7}, {5, 32},  {4, 33},
                          {3, 127}, {2, 128}, {7, 197}, {3, 1000}, {2, 1025}};
  std::vector<Problem> all;
  for (const QuantType& t : {kF32, kF16, kBf16}) {
    for (const Shape& s : shapes) all.push_back(make_problem("softmax", {dense_operand(s, t)}));
    all.push_back(make_problem("softmax", {gapped({6, 25}, t, 7)}));
  }
  all.push_back(make_problem("softmax", {dense_operand({5, 64}, kF16)}, {}, {}, kF32));
  all.push_back(make_problem("softmax", {dense_operand({5, 64}, kF32)}, {}, {}, kF16));
  return all;
}

class SoftmaxVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values);
  }
};

TEST_P(SoftmaxVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(SoftmaxVariant, AgreesOnZeros) { run(problems(), Values::kZeros); }
TEST_P(SoftmaxVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
TEST_P(SoftmaxVariant, AgreesOnRealShapes) {
  run({make_problem("softmax", {dense_operand({2, 12, 197, 197}, kF16)}),
       make_problem("softmax", {dense_operand({3, 30522}, kF32)})},
      Values::kRandom);
}
// Rows of an attention whose keys are all masked, one kind after the other (softmax.h): by minus infinity, by the
// lowest number, by both, and scores that are left beside one of them.
void mask_rows(const Problem& p, size_t, std::vector<double>& numbers) {
  const size_t cols = static_cast<size_t>(p.in[0].shape.back());
  const double lowest = -info(p.in[0].type.element).max;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t kind = i / cols % 5;
    const bool odd = i % cols % 2 == 1;
    if (kind == 0 || (odd && kind >= 2)) numbers[i] = -INFINITY;
    if (kind == 1 || (!odd && kind == 2)) numbers[i] = lowest;
    if (kind == 4 && i % cols != 0) numbers[i] = lowest;
  }
}
TEST_P(SoftmaxVariant, AgreesOnMaskedRows) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const Problem& p : problems()) check_variant(*GetParam(), p, 3, Values::kRandom, mask_rows);
  check_variant(*GetParam(), make_problem("softmax", {dense_operand({5, 4000}, kF32)}), 3, Values::kRandom, mask_rows);
}
TEST_P(SoftmaxVariant, ARowOfMinusInfinityGivesZeros) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const int64_t cols : {1, 7, 8, 64, 2049, 4096}) {
    const Case c = make_case(make_problem("softmax", {dense_operand({5, cols}, kF32)}), 3, Values::kRandom, mask_rows);
    const auto got = run_on(*GetParam(), c);
    ASSERT_TRUE(got.ok()) << got.status().message();
    for (int64_t i = 0; i < cols; ++i) {
      ASSERT_EQ((*got)[0].number(i), 0) << cols << ' ' << i;
      ASSERT_EQ(c.exact[0].v[static_cast<size_t>(i)], 0) << cols << ' ' << i;
      ASSERT_NEAR((*got)[0].number(cols + i), 1.0 / static_cast<double>(cols), 1e-6) << cols << ' ' << i;
    }
  }
}
TEST_P(SoftmaxVariant, Sanitize) {
  run({make_problem("softmax", {dense_operand({3, 197}, kF16)}),
       make_problem("softmax", {dense_operand({2, 1025}, kF32)})},
      Values::kRandom);
}
// What the checks above would see of a wrong kernel (testing/mutations.h).
TEST(SoftmaxPower, MutationsAreCaught) { expect_power_of_all(op(), problems()); }

INSTANTIATE_TEST_SUITE_P(Variants, SoftmaxVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(SoftmaxContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(SoftmaxRule, WantsALastAxis) {
  const auto infer = [](const Shape& x) {
    return infer_types(op(), Problem{.op = "softmax", .in = {dense_operand(x, kF16)}});
  };
  EXPECT_EQ((*infer({2, 3}))[0], (Type{{2, 3}, kF16}));
  EXPECT_FALSE(infer({}).ok());
  EXPECT_FALSE(infer({2, 0}).ok());
}

TEST(SoftmaxReference, SmallNumbersByHand) {
  const Problem p = make_problem("softmax", {dense_operand({2, 2}, kF32)});
  const std::vector<Dense> in = {{{2, 2}, {5, 5, 1000, 1000 + std::log(3.0)}}};
  const Dense y = compute_reference(op(), p, in)[0];
  EXPECT_EQ(y.v[0], 0.5);
  EXPECT_EQ(y.v[1], 0.5);
  EXPECT_NEAR(y.v[2], 0.25, 1e-13);
  EXPECT_NEAR(y.v[3], 0.75, 1e-13);
}

}  // namespace
}  // namespace tessera
