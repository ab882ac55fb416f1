// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "ops/runnable.h"

namespace tessera {
namespace {

Problem linear(const QuantType& x, const QuantType& w, const QuantType& y, int64_t m, int64_t n, int64_t k) {
  Problem p{.op = "matmul",
            .in = {dense_operand({m, k}, x), dense_operand({n, k}, w, true)},
            .out = {dense_operand({m, n}, y)}};
  return p;
}

TEST(Choose, Fp8OnHopperIsMultipliedInFp8OrNotAtAll) {
  for (int64_t k : {16, 40, 768, 770}) {
    for (int64_t m : {1, 197, 12608}) {
      const Choice c =
          choose(*find_op("matmul"), linear(kE4m3PerTensor, kE4m3PerChannel, Element::f16, m, 768, k), Arch::sm90);
      if (c.variant == nullptr) {
        EXPECT_NE(k % 16, 0) << "refused without need: " << (c.refusals.empty() ? "" : c.refusals[0].reason);
        EXPECT_FALSE(c.refusals.empty());
      } else {
        EXPECT_EQ(c.arithmetic.computed, Element::e4m3) << c.variant->name;
      }
    }
  }
}

TEST(Choose, SlowVariantsStepBackAndSayWhy) {
  const Choice few =
      choose(*find_op("matmul"), linear(kE4m3PerTensor, kE4m3PerChannel, Element::f16, 197, 768, 768), Arch::sm90);
  ASSERT_NE(few.variant, nullptr);
  EXPECT_STREQ(few.variant->name, "matmul/sm90_swapped");
  ASSERT_FALSE(few.refusals.empty());
  EXPECT_NE(few.refusals[0].reason.find("not clearly faster than the swapped mainloop at 197 rows"), std::string::npos)
      << few.refusals[0].reason;
  const Choice many =
      choose(*find_op("matmul"), linear(kE4m3PerTensor, kE4m3PerChannel, Element::f16, 12608, 768, 768), Arch::sm90);
  ASSERT_NE(many.variant, nullptr);
  EXPECT_STREQ(many.variant->name, "matmul/sm90_fp8");
}

TEST(Choose, TheReferenceTakesEverything) {
  const Choice c =
      choose(*find_op("matmul"), linear(kE4m3PerTensor, kE4m3PerChannel, Element::bf16, 3, 5, 7), Arch::ref);
  ASSERT_NE(c.variant, nullptr);
  EXPECT_STREQ(c.variant->name, "matmul/reference");
}

TEST(Choose, PromiseIsTheArchsOwnArithmeticOnAGpu) {
  EXPECT_TRUE(keeps_promise(Arch::sm90, Element::e4m3, Element::e4m3));
  EXPECT_FALSE(keeps_promise(Arch::sm90, Element::e4m3, Element::f16));
  EXPECT_FALSE(keeps_promise(Arch::sm90, Element::f32, Element::f16));
  EXPECT_FALSE(keeps_promise(Arch::sm90, Element::f16, Element::bf16));
  EXPECT_TRUE(keeps_promise(Arch::cpu, Element::e4m3, Element::f32));
}

// What Hopper cannot multiply it may store: "stored e2m1, computed fp16", and w4a8, whose type says that products are
// e4m3.
TEST(Choose, AnElementWithoutInstructionsIsStoredOnly) {
  for (Element wide : {Element::f16, Element::bf16, Element::e4m3, Element::f32})
    EXPECT_TRUE(keeps_promise(Arch::sm90, kNvfp4, wide)) << info(wide).name;
  EXPECT_TRUE(keeps_promise(Arch::sm90, kNvfp4AsE4m3, Element::e4m3));
  EXPECT_FALSE(keeps_promise(Arch::sm90, kNvfp4AsE4m3, Element::f16)) << "another rounding than the type's";
  const QuantType int4{Element::i4, {Granularity::kChannel, Element::f32}};
  EXPECT_TRUE(keeps_promise(Arch::sm90, int4, Element::i8));
  EXPECT_TRUE(keeps_promise(Arch::sm90, int4, Element::f16));
  EXPECT_FALSE(keeps_promise(Arch::sm90, int4, Element::e2m1)) << "does not hold 5";
}

TEST(Choose, IntegersWithScalesAreAPrecisionAndIdsAreNone) {
  const QuantType int8{Element::i8, {Granularity::kChannel, Element::f32}};
  EXPECT_TRUE(keeps_promise(Arch::sm90, int8, Element::i8));
  for (Element other : {Element::f16, Element::f32, Element::e4m3})
    EXPECT_FALSE(keeps_promise(Arch::sm90, int8, other)) << info(other).name;
  EXPECT_TRUE(keeps_promise(Arch::cpu, int8, Element::f32));
  for (Element ids : {Element::i8, Element::i32, Element::i64})
    EXPECT_TRUE(keeps_promise(Arch::sm90, ids, Element::f32));
  // Whoever takes int8 weights on a GPU multiplies in int8.
  const QuantType x{Element::i8, {Granularity::kTensor, Element::f32}};
  const Choice c = choose(*find_op("matmul"), linear(x, int8, Element::f16, 64, 64, 64), Arch::sm90);
  if (c.variant != nullptr) {
    EXPECT_EQ(c.arithmetic.computed, Element::i8) << c.variant->name;
  }
}

// Two variants of a made-up op: one with tile shapes that depend on the problem and storage orders that depend on the
// tile, one plain.
std::vector<std::string> tiles_of(const Problem& p) {
  if (p.in[0].shape[0] < 64) return {"64x128"};
  return {"128x192", "128x128", "64x128"};
}
const Variant kTiled{
    .name = "matmul/tiled",
    .arch = Arch::cpu,
    .accepts = [](const Problem&) { return Verdict{}; },
    .arithmetic = [](const Problem&) { return Arithmetic{}; },
    .configs = tiles_of,
    .layouts =
        [](const Problem& p) {
          return std::vector<OperandLayout>{Layout::kRows, p.config == "128x192" ? Layout::kPanels16 : Layout::kRows};
        }};
const Variant kPlain{.name = "matmul/plain",
                     .arch = Arch::cpu,
                     .accepts = [](const Problem&) { return Verdict{}; },
                     .arithmetic = [](const Problem&) { return Arithmetic{}; }};

TEST(Choose, TakesTheFirstTileShapeAndItsStorageOrder) {
  const Variant* const list[] = {&kTiled, &kPlain};
  const OpInfo op{.name = "matmul", .signature = "", .variants = list};
  const Choice large = choose(op, linear(Element::f32, Element::f32, Element::f32, 64, 64, 64), Arch::cpu);
  EXPECT_EQ(large.variant, &kTiled);
  EXPECT_EQ(large.config, "128x192");
  EXPECT_EQ(large.layouts[1], Layout::kPanels16);
  const Choice small = choose(op, linear(Element::f32, Element::f32, Element::f32, 63, 64, 64), Arch::cpu);
  EXPECT_EQ(small.config, "64x128");
  EXPECT_EQ(small.layouts[1], Layout::kRows);
}

// What is taken is not refused: that it calls itself slow is said, and others that do so stay refused.
TEST(Choose, ASlowOneIsTakenWhereNobodyElseAccepts) {
  Variant first = kTiled, second = kPlain, quick = kPlain;
  first.worthwhile = [](const Problem&) { return Verdict{"slow below 512 rows"}; };
  second.worthwhile = [](const Problem&) { return Verdict{"slow everywhere"}; };
  quick.name = "matmul/quick";
  const Problem p = linear(Element::f32, Element::f32, Element::f32, 64, 64, 64);
  const Variant* const slow_ones[] = {&first, &second};
  const OpInfo op{.name = "matmul", .signature = "", .promises = 1, .variants = slow_ones};
  const Choice c = choose(op, p, Arch::cpu);
  EXPECT_EQ(c.variant, &first);
  EXPECT_EQ(c.slow, "slow below 512 rows");
  EXPECT_EQ(c.refusals, (std::vector<Refusal>{{"matmul/plain", "slow everywhere"}}));
  const Variant* const with_quick[] = {&first, &second, &quick};
  const OpInfo more{.name = "matmul", .signature = "", .promises = 1, .variants = with_quick};
  EXPECT_EQ(choose(more, p, Arch::cpu).variant, &quick);
  EXPECT_EQ(choose(more, p, Arch::cpu).slow, "");
  EXPECT_EQ(choose(more, p, Arch::cpu).refusals.size(), 2u);
}

// Only what the list and the contract allow: a table that names something else is no way around them.
TEST(Choose, TheFastestOfATableIsTakenWhereItMayRun) {
  static const Variant refusing{.name = "matmul/refusing",
                                .arch = Arch::sm90,
                                .accepts = [](const Problem&) { return Verdict{"never"}; },
                                .arithmetic = [](const Problem&) { return Arithmetic{}; }};
  static const Variant wide{.name = "matmul/wide",
                            .arch = Arch::sm90,
                            .accepts = [](const Problem&) { return Verdict{}; },
                            .arithmetic = [](const Problem&) { return Arithmetic{.computed = Element::f16}; }};
  Variant tiled = kTiled, plain = kPlain;
  tiled.arch = plain.arch = Arch::sm90;
  tiled.worthwhile = [](const Problem&) { return Verdict{"slow by its own word"}; };
  const Variant* const list[] = {&refusing, &wide, &tiled, &plain};
  const OpInfo op{.name = "matmul", .signature = "", .promises = 1, .variants = list};
  const Problem p = linear(Element::f32, Element::f32, Element::f32, 64, 64, 64);
  const std::string key = problem_key(p, Arch::sm90);
  ASSERT_EQ(candidates(op, p, Arch::sm90).size(), 4u);
  EXPECT_EQ(choose(op, p, Arch::sm90).variant, &plain);

  TuningTable table{.gpu = "made up", .arch = Arch::sm90, .entries = {}};
  table.record(key, {"matmul/refusing", "", 1});
  table.record(key, {"matmul/wide", "", 2});
  table.record(key, {"matmul/tiled", "256x256", 3});
  EXPECT_EQ(choose(op, p, Arch::sm90, &table).variant, &plain) << "nothing that the table names may run: by the list";
  EXPECT_FALSE(choose(op, p, Arch::sm90, &table).measured);
  table.record(key, {"matmul/tiled", "128x128", 37});
  table.record(key, {"matmul/plain", "", 41.2});
  const Choice c = choose(op, p, Arch::sm90, &table);
  EXPECT_TRUE(c.measured);
  EXPECT_EQ(c.variant, &tiled);
  EXPECT_EQ(c.config, "128x128");
  EXPECT_EQ(c.layouts[1], Layout::kRows) << "the order that this tile shape wants";
  const std::vector<Refusal> want = {{"matmul/refusing", "never"},
                                     {"matmul/wide", "multiplies in fp16, asked for f32"},
                                     {"matmul/tiled 128x192", "not measured in the tuning table"},
                                     {"matmul/tiled 64x128", "not measured in the tuning table"},
                                     {"matmul/plain", kSlowerAsMeasured}};
  EXPECT_EQ(c.refusals, want);
  // Another problem and another arch are not in the table.
  EXPECT_EQ(choose(op, linear(Element::f32, Element::f32, Element::f32, 65, 64, 64), Arch::sm90, &table).variant,
            &plain);
  table.arch = Arch::cuda;
  EXPECT_EQ(choose(op, p, Arch::sm90, &table).variant, &plain);
}

TEST(Configs, AreTheVariantsOwnOrRefusedWithTheList) {
  Problem p = linear(Element::f32, Element::f32, Element::f32, 64, 64, 64);
  EXPECT_EQ(configs_of(kTiled, p), (std::vector<std::string>{"128x192", "128x128", "64x128"}));
  EXPECT_EQ(configs_of(kPlain, p), std::vector<std::string>{""});
  EXPECT_EQ(*checked_config(kTiled, p), "128x192");
  EXPECT_EQ(*checked_config(kPlain, p), "");
  p.config = "64x128";
  EXPECT_EQ(*checked_config(kTiled, p), "64x128");
  EXPECT_EQ(checked_config(kPlain, p).status().message(),
            "'matmul/plain' has no config '64x128' for this problem; it has one, without a name");
  p.config = "8x8";
  EXPECT_EQ(checked_config(kTiled, p).status().message(),
            "'matmul/tiled' has no config '8x8' for this problem; it has 128x192, 128x128, 64x128");
}

}  // namespace
}  // namespace tessera
