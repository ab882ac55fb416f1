// SPDX-License-Identifier: Apache-2.0
#include "ops/topk/topk.h"

#include <cmath>

#include "op/reference.h"
#include "ops/ops.h"
#include "testing/mutations.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("topk"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;

Problem problem(const Shape& x, const QuantType& type, int64_t k, bool least = false) {
  return make_problem("topk", {dense_operand(x, type)}, {{"k", k}, {"least", int64_t{least}}});
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const QuantType& t : {kF32, kF16, kBf16, QuantType(Element::i64), QuantType(Element::i32)}) {
    for (const bool least : {false, true}) {
      all.push_back(problem({1}, t, 1, least));
      all.push_back(problem({3, 7}, t, 7, least));
      all.push_back(problem({2, 5, 33}, t, 4, least));
      all.push_back(problem({4, 1025}, t, 300, least));
      all.push_back(problem({2, 5000}, t, 4096, least));
      all.push_back(problem({3, 9}, t, 0, least));
      all.push_back(problem({0, 9}, t, 2, least));
    }
  }
  return all;
}

class TopkVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values);
  }
};

TEST_P(TopkVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(TopkVariant, AgreesOnZeros) { run(problems(), Values::kZeros); }
TEST_P(TopkVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
TEST_P(TopkVariant, AgreesOnRealShapes) { run({problem({1, 8400}, kF32, 300)}, Values::kRandom); }
TEST_P(TopkVariant, Sanitize) { run({problem({3, 33}, kF32, 5)}, Values::kRandom); }

INSTANTIATE_TEST_SUITE_P(Variants, TopkVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(TopkContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(TopkRule, PlacesOfTheLastAxis) {
  const auto infer = [](const Shape& x, const Attrs& attrs) {
    return infer_types(op(), Problem{.op = "topk", .in = {dense_operand(x, kF16)}, .out = {}, .attrs = attrs});
  };
  EXPECT_EQ((*infer({2, 9}, {{"k", int64_t{3}}}))[0], (Type{{2, 3}, Element::i64}));
  EXPECT_EQ((*infer({2, 0}, {{"k", int64_t{0}}}))[0].shape, (Shape{2, 0}));
  EXPECT_FALSE(infer({2, 9}, {{"k", int64_t{10}}}).ok());
  EXPECT_FALSE(infer({2, 9}, {{"k", int64_t{-1}}}).ok());
  EXPECT_FALSE(infer({2, 9}, {}).ok());
  EXPECT_FALSE(infer({}, {{"k", int64_t{0}}}).ok());
}

TEST(TopkReference, FirstOfEqualsAndNansByHand) {
  const std::vector<Dense> in = {{{6}, {2, 5, NAN, 5, -INFINITY, 2}}};
  EXPECT_EQ(compute_reference(op(), problem({6}, kF32, 6), in)[0].v, (std::vector<double>{2, 1, 3, 0, 5, 4}));
  EXPECT_EQ(compute_reference(op(), problem({6}, kF32, 6, true), in)[0].v, (std::vector<double>{4, 0, 5, 1, 3, 2}));
}

}  // namespace
}  // namespace tessera
