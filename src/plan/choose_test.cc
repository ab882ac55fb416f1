// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

Problem linear(const QuantType& x, const QuantType& w, const QuantType& y, int64_t m, int64_t n, int64_t k) {
  Problem p{.op = "matmul", .in = {dense_operand({m, k}, x), dense_operand({n, k}, w, true)}, .out = {dense_operand({m, n}, y)}};
  return p;
}

TEST(Choose, Fp8OnHopperIsMultipliedInFp8OrNotAtAll) {
  for (int64_t k : {16, 40, 768, 770}) {
    for (int64_t m : {1, 197, 12608}) {
      const Choice c = choose(*find_op("matmul"), linear(kE4m3PerTensor, kE4m3PerChannel, Element::f16, m, 768, k), Arch::sm90);
      if (c.variant == nullptr) {
        EXPECT_NE(k % 16, 0) << "refused without need: " << (c.refusals.empty() ? "" : c.refusals[0].reason);
        EXPECT_FALSE(c.refusals.empty());
      } else {
        EXPECT_EQ(c.arithmetic.computed, "e4m3") << c.variant->name;
      }
    }
  }
}

TEST(Choose, SlowVariantsStepBackAndSayWhy) {
  const Choice few = choose(*find_op("matmul"), linear(kE4m3PerTensor, kE4m3PerChannel, Element::f16, 197, 768, 768), Arch::sm90);
  ASSERT_NE(few.variant, nullptr);
  EXPECT_STREQ(few.variant->name, "matmul/sm90_cublaslt_fp8");
  ASSERT_FALSE(few.refusals.empty());
  EXPECT_NE(few.refusals[0].reason.find("slow"), std::string::npos);
  const Choice many = choose(*find_op("matmul"), linear(kE4m3PerTensor, kE4m3PerChannel, Element::f16, 12608, 768, 768), Arch::sm90);
  ASSERT_NE(many.variant, nullptr);
  EXPECT_STREQ(many.variant->name, "matmul/sm90_wgmma");
}

TEST(Choose, TheReferenceTakesEverything) {
  const Choice c = choose(*find_op("matmul"), linear(kE4m3PerTensor, kE4m3PerChannel, Element::bf16, 3, 5, 7), Arch::ref);
  ASSERT_NE(c.variant, nullptr);
  EXPECT_STREQ(c.variant->name, "matmul/reference");
}

TEST(Choose, PromiseIsTheArchsOwnArithmeticOnAGpu) {
  EXPECT_TRUE(keeps_promise(Arch::sm90, Element::e4m3, "e4m3"));
  EXPECT_FALSE(keeps_promise(Arch::sm90, Element::e4m3, "fp16"));
  EXPECT_FALSE(keeps_promise(Arch::sm90, Element::f32, "tf32"));
  EXPECT_TRUE(keeps_promise(Arch::cpu, Element::e4m3, "fp32"));
}

TEST(Choose, IntegersWithScalesAreAPrecisionAndIdsAreNone) {
  const QuantType int8{Element::i8, {Granularity::kChannel, Element::f32}};
  EXPECT_TRUE(keeps_promise(Arch::sm90, int8, "int8"));
  for (const char* other : {"fp16", "fp32", "tf32", "e4m3"})
    EXPECT_FALSE(keeps_promise(Arch::sm90, int8, other)) << other;
  EXPECT_TRUE(keeps_promise(Arch::cpu, int8, "fp32"));
  for (Element ids : {Element::i8, Element::i32, Element::i64}) EXPECT_TRUE(keeps_promise(Arch::sm90, ids, "fp32"));
  // Whoever takes int8 weights on a GPU multiplies in int8.
  const QuantType x{Element::i8, {Granularity::kTensor, Element::f32}};
  const Choice c = choose(*find_op("matmul"), linear(x, int8, Element::f16, 64, 64, 64), Arch::sm90);
  if (c.variant != nullptr) {
    EXPECT_EQ(c.arithmetic.computed, "int8") << c.variant->name;
  }
}

}  // namespace
}  // namespace tessera
