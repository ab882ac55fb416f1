// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/ops.h"
#include "ops/rotary/rotary.h"
#include "testing/mutations.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("rotary"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;

Problem problem(Operand x, Operand cos, Operand sin, int64_t interleaved, std::optional<QuantType> y = {}) {
  Program then;
  if (y && y->scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("rotary", {std::move(x), std::move(cos), std::move(sin)}, {{"interleaved", interleaved}},
                      std::move(then), y);
}

// Dense operands: pairs r, `batches` of angles.
Problem dense(const Shape& x, int64_t r, int64_t batches, int64_t interleaved, const QuantType& t, Element angles,
              std::optional<QuantType> y = {}) {
  const Operand angle = dense_operand({batches, x[1], r}, angles);
  return problem(dense_operand(x, t), angle, angle, interleaved, y);
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const int64_t interleaved : {0, 1}) {
    for (const QuantType& t : {kF32, kF16, kBf16}) {
      for (const Element angles : {Element::f32, t.element}) {
        all.push_back(dense({1, 1, 1, 2}, 1, 1, interleaved, t, angles));
        all.push_back(dense({2, 3, 2, 6}, 3, 1, interleaved, t, angles));
        all.push_back(dense({2, 3, 2, 7}, 2, 2, interleaved, t, angles));  // one of each head left over and more
        all.push_back(dense({3, 5, 4, 16}, 8, 1, interleaved, t, angles));
        all.push_back(dense({2, 5, 3, 64}, 32, 2, interleaved, t, angles));
        all.push_back(dense({2, 5, 3, 80}, 16, 1, interleaved, t, angles));  // partial rotation
        all.push_back(dense({1, 3, 2, 72}, 36, 1, interleaved, t, angles));  // pairs no multiple of 8
        all.push_back(dense({1, 2, 1, 1300}, 640, 1, interleaved, t, angles));
      }
      // q inside a QKV matrix, heads before tokens, and a transposed last axis; angles repeated in pairs or halves.
      const Operand angle = dense_operand({1, 5, 8}, t);
      Operand qkv = dense_operand({2, 5, 4, 16}, t), every_second = dense_operand({2, 5, 8}, t);
      qkv.strides = {5 * 192, 192, 16, 1};
      every_second.strides = {5 * 16, 16, 2};
      all.push_back(problem(qkv, angle, angle, interleaved));
      all.push_back(problem(swapped({2, 5, 4, 16}, t, 1, 2), angle, angle, interleaved));
      all.push_back(problem(swapped({2, 5, 4, 16}, t, 2, 3), angle, angle, interleaved));
      all.push_back(problem(qkv, gapped({2, 5, 8}, t, 8), gapped({2, 5, 8}, t, 8), interleaved));
      all.push_back(problem(qkv, every_second, every_second, interleaved));
    }
    all.push_back(dense({2, 3, 2, 32}, 16, 1, interleaved, kF16, Element::f16, kE4m3PerTensor));
    all.push_back(dense({2, 3, 2, 20}, 8, 1, interleaved, kF32, Element::f32, kE4m3PerTensor));
    all.push_back(dense({2, 3, 2, 32}, 16, 1, interleaved, kE4m3PerTensor, Element::f32, kF16));
    all.push_back(dense({2, 0, 2, 8}, 4, 1, interleaved, kF32, Element::f32));
  }
  return all;
}

class RotaryVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values);
  }
};

TEST_P(RotaryVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }
TEST_P(RotaryVariant, AgreesOnZeros) { run(problems(), Values::kZeros); }
TEST_P(RotaryVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
TEST_P(RotaryVariant, AgreesOnRealShapes) {
  run({dense({2, 577, 16, 64}, 32, 1, 1, kF16, Element::f16), dense({1, 512, 32, 128}, 64, 1, 0, kF16, Element::f32),
       dense({1, 512, 8, 256}, 128, 1, 0, kF32, Element::f32)},
      Values::kRandom);
}
TEST_P(RotaryVariant, Sanitize) {
  run({dense({2, 5, 3, 64}, 32, 1, 0, kF16, Element::f16), dense({2, 3, 2, 7}, 2, 2, 1, kF32, Element::f32)},
      Values::kRandom);
}
// What the checks above would see of a wrong kernel (testing/mutations.h).
TEST(RotaryPower, MutationsAreCaught) { expect_power_of_all(op(), problems()); }

INSTANTIATE_TEST_SUITE_P(Variants, RotaryVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(RotaryContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(RotaryRule, RefusesWhatDoesNotFit) {
  const auto infer = [](const Shape& x, const Shape& cos, const Shape& sin, int64_t interleaved = 0) {
    return infer_types(op(), Problem{.op = "rotary",
                                     .in = {dense_operand(x, kF16), dense_operand(cos, kF32), dense_operand(sin, kF32)},
                                     .out = {},
                                     .attrs = {{"interleaved", interleaved}}});
  };
  EXPECT_EQ((*infer({2, 3, 4, 8}, {1, 3, 4}, {1, 3, 4}))[0], (Type{{2, 3, 4, 8}, kF16}));
  EXPECT_TRUE(infer({2, 3, 4, 8}, {2, 3, 1}, {2, 3, 1}, 1).ok());
  EXPECT_FALSE(infer({2, 3, 4, 8}, {1, 3, 5}, {1, 3, 5}).ok()) << "more than half of the head";
  EXPECT_FALSE(infer({2, 3, 4, 8}, {1, 3, 0}, {1, 3, 0}).ok());
  EXPECT_FALSE(infer({2, 3, 4, 8}, {3, 3, 4}, {3, 3, 4}).ok()) << "three batches of angles for two";
  EXPECT_FALSE(infer({2, 3, 4, 8}, {1, 2, 4}, {1, 2, 4}).ok()) << "fewer tokens";
  EXPECT_FALSE(infer({2, 3, 4, 8}, {1, 3, 4}, {1, 3, 2}).ok());
  EXPECT_FALSE(infer({2, 3, 8}, {1, 3, 4}, {1, 3, 4}).ok());
  EXPECT_FALSE(infer({2, 3, 4, 8}, {1, 3, 4}, {1, 3, 4}, 2).ok());
}

TEST(RotaryReference, SmallNumbersByHand) {
  // A quarter turn takes (x1, x2) to (-x2, x1); the fifth number passes through.
  const auto turned = [](int64_t interleaved) {
    const Problem p = problem(dense_operand({1, 1, 1, 5}, kF32), dense_operand({1, 1, 2}, kF32),
                              dense_operand({1, 1, 2}, kF32), interleaved);
    const std::vector<Dense> in = {{{1, 1, 1, 5}, {1, 2, 3, 4, 5}}, {{1, 1, 2}, {0, 1}}, {{1, 1, 2}, {1, 0}}};
    return compute_reference(op(), p, in)[0].v;
  };
  EXPECT_EQ(turned(0), (std::vector<double>{-3, 2, 1, 4, 5}));
  EXPECT_EQ(turned(1), (std::vector<double>{-2, 1, 3, 4, 5}));
}

}  // namespace
}  // namespace tessera
