// SPDX-License-Identifier: Apache-2.0
#include "ops/copy/copy.h"

#include <algorithm>
#include <cmath>

#include "ops/reference.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("copy"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16, kE4m3 = Element::e4m3,
                kI64 = Element::i64, kI32 = Element::i32, kU8 = Element::u8;

Problem problem(Operand x, std::optional<QuantType> y = {}) { return make_problem("copy", {std::move(x)}, {}, {}, y); }

std::vector<Problem> problems() {
  std::vector<Problem> all;
  const QuantType floats[] = {kF32, kF16, kBf16, kE4m3, kE4m3PerTensor};
  for (const QuantType& x : floats) {
    for (const QuantType& y : floats) {
      for (const Shape& s :
           {Shape{}, Shape{1}, Shape{0, 3}, Shape{7}, Shape{3, 5}, Shape{2, 3, 64}, Shape{513}, Shape{5, 1025}})
        all.push_back(problem(dense_operand(s, x), y));
      all.push_back(problem(swapped({6, 35}, x, 0, 1), y));
      all.push_back(problem(swapped({2, 17, 3, 16}, x, 1, 2), y));
      all.push_back(problem(swapped({3, 33, 40}, x, 1, 2), y));
      all.push_back(problem(gapped({4, 3, 20}, x, 12), y));
    }
  }
  for (const QuantType& t : {kI64, kI32, kU8}) {
    all.push_back(problem(dense_operand({3, 7}, t)));
    all.push_back(problem(swapped({3, 7}, t, 0, 1)));
    all.push_back(problem(dense_operand({3, 7}, t), kF32));
    all.push_back(problem(dense_operand({3, 7}, kF32), t));
  }
  all.push_back(problem(dense_operand({65}, kI64), kI32));
  return all;
}

class CopyVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values);
  }
};

TEST_P(CopyVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(CopyVariant, AgreesOnZeros) { run(problems(), Values::kZeros); }
TEST_P(CopyVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }

// Patches of an image: [b, c, gy, py, gx, px] -> [b, gy, gx, c, py, px].
Operand patches(int64_t batch, int64_t grid, int64_t patch, const QuantType& type) {
  Operand o = dense_operand({batch, grid, grid, 3, patch, patch}, type);
  const int64_t line = grid * patch, plane = line * line;
  o.strides = {3 * plane, patch * line, patch, plane, line, 1};
  return o;
}
TEST_P(CopyVariant, AgreesOnRealShapes) {
  run({problem(patches(2, 14, 16, kF32), kF16), problem(patches(1, 14, 16, kF32), kE4m3PerTensor),
       problem(swapped({2, 12, 197, 64}, kF16, 1, 2)), problem(swapped({2, 768, 196}, kF32, 1, 2), kF16)},
      Values::kRandom);
}
TEST_P(CopyVariant, Sanitize) {
  run({problem(patches(1, 2, 8, kF32), kF16), problem(swapped({3, 33, 40}, kF16, 1, 2)),
       problem(dense_operand({513}, kF32), kE4m3PerTensor), problem(dense_operand({77}, kF16))},
      Values::kRandom);
}
INSTANTIATE_TEST_SUITE_P(Variants, CopyVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(CopyContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(CopyRule, TheElementMayBeNamed) {
  Problem p{.op = "copy", .in = {dense_operand({2, 3}, kF32)}, .out = {}, .attrs = {}};
  EXPECT_EQ((*infer_types(op(), p))[0], (Type{{2, 3}, kF32}));
  p.attrs.set("element", std::string("f16"));
  EXPECT_EQ((*infer_types(op(), p))[0], (Type{{2, 3}, kF16}));
  p.attrs.set("element", std::string("f17"));
  EXPECT_FALSE(infer_types(op(), p).ok());
  EXPECT_FALSE(infer_types(op(), Problem{.op = "copy"}).ok());
}

TEST(CopyReading, MergesAxes) {
  const CopyProblem dense = CopyProblem::of(problem(dense_operand({2, 3, 4}, kF32))).merged();
  EXPECT_EQ(dense.shape, Shape({24}));
  const CopyProblem heads = CopyProblem::of(problem(swapped({2, 12, 5, 64}, kF32, 1, 2))).merged();
  EXPECT_EQ(heads.shape, Shape({2, 12, 5, 64}));
  const CopyProblem rows = CopyProblem::of(problem(gapped({2, 3, 1, 8}, kF32, 4))).merged();
  EXPECT_EQ(rows.shape, Shape({6, 8}));
  EXPECT_EQ(rows.strides, Shape({12, 1}));
  const CopyProblem scalar = CopyProblem::of(problem(dense_operand({}, kF32))).merged();
  EXPECT_EQ(scalar.shape, Shape({1}));
}

TEST(CopyReference, FloatsBecomeIntegersTowardsZero) {
  const std::vector<Dense> in = {{{4}, {1.7, -1.7, 2.5, -0.2}}};
  EXPECT_EQ(compute_reference(op(), problem(dense_operand({4}, kF32), kI64), in)[0].v,
            (std::vector<double>{1, -1, 2, 0}));
}

TEST(CopyReference, QuantizesWithTheScaleOfTheResult) {
  const Problem p = problem(dense_operand({4}, kF32), kE4m3PerTensor);
  float x[] = {1, -3, 1000, 0.3f}, scale = 0.5f;
  uint8_t y[4] = {};
  const TensorView in[] = {{.desc = &p.in[0], .data = x}}, out[] = {{.desc = &p.out[0], .data = y, .scale = &scale}};
  ASSERT_TRUE(run_reference(op(), p, in, out).ok());
  EXPECT_EQ(decode(out[0]).v, (std::vector<double>{1, -3, 224, 0.3125}));  // 448 * 0.5; 0.6 rounds to 0.625
}

}  // namespace
}  // namespace tessera
