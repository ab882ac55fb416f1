// SPDX-License-Identifier: Apache-2.0
#include "ops/concat/concat.h"

#include <algorithm>

#include "op/reference.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("concat"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16, kI64 = Element::i64;

Problem problem(int64_t axis, std::vector<Operand> in, std::optional<QuantType> y = {}) {
  return make_problem("concat", std::move(in), {{"axis", axis}}, {}, y);
}

Operand repeated(const Shape& shape, const QuantType& type) {  // one row for all of the first axis
  Operand o = dense_operand(shape, type);
  o.strides[0] = 0;
  return o;
}

// Patches of an image, [b, grid, grid, 3, patch, patch]: rows of y that no strides over [b, rows, columns] could
// address.
Operand patches(int64_t batch, int64_t grid, int64_t patch, const QuantType& type) {
  Operand o = dense_operand({batch, grid, grid, 3, patch, patch}, type);
  const int64_t line = grid * patch, plane = line * line;
  o.strides = {3 * plane, patch * line, patch, plane, line, 1};
  return o;
}

// Operands whose axes are y's, or finer; y is `block` from the axis on.
Problem split(int64_t axis, const Shape& block, std::vector<Operand> in, std::optional<QuantType> y = {}) {
  return make_problem("concat", std::move(in), {{"axis", axis}, {"block", block}}, {}, y);
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const QuantType& t : {kF32, kF16, kBf16, kI64}) {
    const auto x = [&](const Shape& s) { return dense_operand(s, t); };
    all.push_back(problem(0, {x({1}), x({1})}));
    all.push_back(problem(0, {x({3, 5})}));
    all.push_back(problem(0, {x({3, 5}), x({1, 5}), x({4, 5})}));
    all.push_back(problem(1, {x({3, 5}), x({3, 1}), x({3, 1})}));
    all.push_back(problem(-1, {x({2, 3, 7}), x({2, 3, 9})}));
    all.push_back(problem(1, {repeated({4, 1, 48}, t), x({4, 16, 48})}));  // a class token before the patches
    all.push_back(problem(1, {swapped({2, 6, 5}, t, 1, 2), gapped({2, 3, 5}, t, 3)}));
    all.push_back(problem(2, {x({2, 3, 0}), x({2, 3, 4})}));
    all.push_back(
        problem(1, {x({2, 3, 16}), x({2, 5, 16}), x({2, 1, 16}), x({2, 2, 16})}));  // as many as one launch takes
    all.push_back(problem(1, {x({2, 3, 8}), x({2, 5, 8}), x({2, 1, 8}), x({2, 2, 8}), x({2, 4, 8})}));
    all.push_back(split(1, {5, 12}, {repeated({3, 1, 12}, t), patches(3, 2, 2, t)}));
    all.push_back(split(1, {6, 192}, {patches(2, 2, 8, t), repeated({2, 2, 192}, t)}));
    all.push_back(split(0, {8, 6}, {x({2, 3, 6}), x({2, 6})}));
  }
  all.push_back(problem(0, {dense_operand({4, 8}, kF16), dense_operand({2, 8}, kF32)}, kF32));
  return all;
}

class ConcatVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values);
  }
};

TEST_P(ConcatVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(ConcatVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
TEST_P(ConcatVariant, AgreesOnRealShapes) {
  run({problem(1, {repeated({8, 1, 768}, kF16), dense_operand({8, 196, 768}, kF16)}),
       problem(1, {repeated({2, 1, 768}, kF32), dense_operand({2, 196, 768}, kF32)}),
       split(1, {197, 768}, {dense_operand({2, 1, 768}, kF16), patches(2, 14, 16, kF32)}, kF16),
       split(1, {197, 768}, {dense_operand({1, 1, 768}, kF32), patches(1, 14, 16, kF32)}, kE4m3PerTensor)},
      Values::kRandom);
}
TEST_P(ConcatVariant, Sanitize) {
  run({problem(1, {repeated({2, 1, 768}, kF16), dense_operand({2, 9, 768}, kF16)}),
       problem(1, {dense_operand({3, 5}, kF32), dense_operand({3, 2}, kF32)})},
      Values::kRandom);
}
INSTANTIATE_TEST_SUITE_P(Variants, ConcatVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(ConcatContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(ConcatRule, AxesMustAgreeButForOne) {
  const auto infer = [](int64_t axis, std::vector<Shape> shapes) {
    Problem p{.op = "concat", .in = {}, .out = {}, .attrs = {{"axis", axis}}};
    for (const Shape& s : shapes) p.in.push_back(dense_operand(s, kF16));
    return infer_types(op(), p);
  };
  EXPECT_EQ((*infer(1, {{2, 3}, {2, 4}}))[0], (Type{{2, 7}, kF16}));
  EXPECT_EQ((*infer(-2, {{2, 3}, {5, 3}}))[0].shape, Shape({7, 3}));
  EXPECT_FALSE(infer(0, {{2, 3}, {2, 4}}).ok());
  EXPECT_FALSE(infer(2, {{2, 3}, {2, 3}}).ok());
  EXPECT_FALSE(infer(-3, {{2, 3}}).ok());
  EXPECT_FALSE(infer(0, {{2, 3}, {2}}).ok());
  EXPECT_FALSE(infer(0, {{}}).ok());
  EXPECT_FALSE(infer(0, {}).ok());
}

TEST(ConcatRule, SplitOperandsFillTheBlock) {
  const auto infer = [](int64_t axis, const Shape& block, std::vector<Shape> shapes) {
    Problem p{.op = "concat", .in = {}, .out = {}, .attrs = {{"axis", axis}, {"block", block}}};
    for (const Shape& s : shapes) p.in.push_back(dense_operand(s, kF16));
    return infer_types(op(), p);
  };
  EXPECT_EQ((*infer(1, {5, 12}, {{2, 1, 12}, {2, 2, 2, 3, 4}}))[0], (Type{{2, 5, 12}, kF16}));
  EXPECT_EQ((*infer(1, {5, 12}, {{2, 2, 2, 3, 4}, {2, 1, 12}}))[0], (Type{{2, 5, 12}, kF16}));
  EXPECT_FALSE(infer(1, {6, 12}, {{2, 1, 12}, {2, 2, 2, 3, 4}}).ok()) << "a row is missing";
  EXPECT_FALSE(infer(1, {5, 12}, {{2, 1, 12}, {4, 2, 3, 4}}).ok()) << "no axis ends where an image does";
  EXPECT_FALSE(infer(1, {5, 12}, {{2, 1, 12}, {2, 2, 2, 3, 5}}).ok());
  EXPECT_FALSE(infer(1, {5, 12}, {{2, 5, 12}, {2, 0, 12}}).ok());
  EXPECT_FALSE(infer(-2, {5, 12}, {{2, 1, 12}, {2, 2, 2, 3, 4}}).ok());
  EXPECT_FALSE(infer(3, {5, 12}, {{2, 5, 12}}).ok());
  EXPECT_FALSE(infer(0, {}, {{2}}).ok());
  EXPECT_FALSE(infer(1, {-5, 12}, {{2, 5, 12}}).ok());
}

TEST(ConcatReference, SmallNumbersByHand) {
  const Problem p = problem(1, {dense_operand({2, 2}, kF32), dense_operand({2, 1}, kF32)});
  const std::vector<Dense> in = {{{2, 2}, {1, 2, 3, 4}}, {{2, 1}, {5, 6}}};
  EXPECT_EQ(compute_reference(op(), p, in)[0].v, (std::vector<double>{1, 2, 5, 3, 4, 6}));
}

}  // namespace
}  // namespace tessera
