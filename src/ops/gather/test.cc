// SPDX-License-Identifier: Apache-2.0
#include "ops/gather/gather.h"

#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("gather"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;

Problem problem(const Shape& table, const QuantType& type, const Shape& ids, Element id_type,
                std::optional<QuantType> y = {}) {
  return make_problem("gather", {dense_operand(table, type, true), dense_operand(ids, id_type)}, {}, {}, y);
}

// Ids inside the table, negative ones too where the type has them.
void make_ids(const Problem& p, size_t i, std::vector<double>& numbers) {
  if (i != 1) return;
  const double n = static_cast<double>(p.in[0].shape[0]);
  for (double& v : numbers)
    v = p.in[1].type.element == Element::u8 ? std::fmod(v, std::min(n, 256.0)) : std::fmod(v, n);
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const QuantType& t : {kF32, kF16, kBf16}) {
    for (Element ids : {Element::i64, Element::i32, Element::u8}) {
      all.push_back(problem({1, 1}, t, {1}, ids));
      all.push_back(problem({7, 5}, t, {3}, ids));
      all.push_back(problem({9, 3, 4}, t, {2, 5}, ids));
      all.push_back(problem({33, 768}, t, {2, 17}, ids));
      all.push_back(problem({6}, t, {4}, ids));
    }
  }
  for (const QuantType& t : {kF32, kF16}) {  // a number for every byte, for one to four channels, and of bytes alone
    for (const Shape& table : {Shape{256}, {256, 3}, {256, 4}, {300, 5}, {255, 3}})
      all.push_back(problem(table, t, {2, 19, 3}, Element::u8));
  }
  all.push_back(problem({256, 3}, kF16, {3, 53, 61}, Element::u8));  // more than are moved in one piece
  all.push_back(problem({256, 3}, kF32, {2, 5}, Element::u8, kF16));
  all.push_back(problem({12, 33}, kF16, {5}, Element::i64, kF32));
  all.push_back(problem({12, 33}, kF32, {}, Element::i64));
  // Pieces of parallel work: many short rows in several, one long row in several, the last of them shorter.
  for (const QuantType& y : {kF16, kF32}) {
    all.push_back(problem({301, 7}, kF16, {5003}, Element::i64, y));
    all.push_back(problem({5, 70001}, kF16, {2, 2}, Element::i32, y));
    all.push_back(problem({256, 33333}, kF16, {3}, Element::u8, y));
    all.push_back(problem({3, 0}, kF16, {4}, Element::i64, y));
  }
  return all;
}

class GatherVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values, make_ids);
  }
};

TEST_P(GatherVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(GatherVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
TEST_P(GatherVariant, AgreesOnRealShapes) {
  run({problem({3000, 768}, kF16, {2, 128}, Element::i64)}, Values::kRandom);
}
TEST_P(GatherVariant, Sanitize) {
  run({problem({33, 768}, kF16, {2, 17}, Element::i64), problem({9, 3, 4}, kF32, {2, 5}, Element::i32)},
      Values::kRandom);
}

void make_one_id_too_large(const Problem& p, size_t i, std::vector<double>& numbers) {
  make_ids(p, i, numbers);
  if (i == 1) numbers[3] = static_cast<double>(p.in[0].shape[0]);
}

// Host variants say which id it is; a kernel on a GPU writes zeros there, and reads nothing outside the table.
TEST_P(GatherVariant, SaysWhichIdIsOutside) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  const Problem p = problem({7, 5}, kF32, {6}, Element::i64);
  ASSERT_TRUE(GetParam()->accepts(p)) << GetParam()->accepts(p).refusal;
  const Case c = make_case(p, 1, Values::kRandom, make_one_id_too_large);
  const auto got = run_on(*GetParam(), c);
  if (info(GetParam()->arch).device == DeviceKind::kHost) {
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.status().message(), "gather: id 7 at position 3 is outside the table of 7 rows");
    EXPECT_EQ(got.status().code(), Code::kBadInput);
  } else {
    ASSERT_TRUE(got.ok()) << got.status().message();
    for (int64_t i = 0; i < 30; ++i)
      EXPECT_EQ((*got)[0].number(i), i / 5 == 3 ? 0.0 : c.exact[0].v[static_cast<size_t>(i)]) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Variants, GatherVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(GatherContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(GatherRule, IdsThenTheRestOfTheTable) {
  const auto infer = [](const Shape& table, const Shape& ids, Element e, int64_t axis) {
    return infer_types(op(), Problem{.op = "gather",
                                     .in = {dense_operand(table, kF16), dense_operand(ids, e)},
                                     .out = {},
                                     .attrs = {{"axis", axis}}});
  };
  EXPECT_EQ((*infer({10, 4, 2}, {3, 5}, Element::i64, 0))[0], (Type{{3, 5, 4, 2}, kF16}));
  EXPECT_EQ((*infer({10}, {}, Element::i64, 0))[0].shape, Shape{});
  EXPECT_FALSE(infer({10, 4}, {3}, Element::f32, 0).ok());
  EXPECT_FALSE(infer({10, 4}, {3}, Element::i64, 1).ok());
  EXPECT_FALSE(infer({}, {3}, Element::i64, 0).ok());
}

TEST(GatherReference, NegativeIdsCountFromTheEnd) {
  const Problem p = problem({3, 2}, kF32, {2}, Element::i64);
  const std::vector<Dense> in = {{{3, 2}, {1, 2, 3, 4, 5, 6}}, {{2}, {-1, 1}}};
  EXPECT_EQ(compute_reference(op(), p, in)[0].v, (std::vector<double>{5, 6, 3, 4}));
}

TEST(GatherReference, EvaluateReturnsTheError) {
  const Problem p = problem({3, 1}, kF32, {1}, Element::i64);
  float table[] = {1, 2, 3};
  for (int64_t id : {-4, 3, 2}) {
    const TensorView in[] = {{.desc = &p.in[0], .data = table}, {.desc = &p.in[1], .data = &id}};
    const auto got = evaluate(op(), p, in);
    ASSERT_EQ(got.ok(), id == 2);
    if (id == 2) {
      EXPECT_EQ(*reinterpret_cast<const float*>((*got)[0].data()), 3.0f);
    } else {
      EXPECT_EQ(got.status().message(), cat("gather: id ", id, " at position 0 is outside the table of 3 rows"));
    }
  }
}

}  // namespace
}  // namespace tessera
