// SPDX-License-Identifier: Apache-2.0
// 4-bit weights on Hopper (matmul/sm90_w4, tiles/sm90/nibbles.cuh): who takes them, what they say they
// compute, and that they compute it, over the shapes of the mainloop and of real layers.
#include <algorithm>

#include "op/reference.h"
#include "ops/matmul/test_problems.h"
#include "ops/ops.h"
#include "testing/mutations.h"

namespace tessera {
namespace {

const Types kNibbleTypes[] = {{kF16, kNvfp4, kF16},
                              {kF16, kNvfp4, kF32},
                              {kE4m3PerTensor, kNvfp4AsE4m3, kF16},
                              {kE4m3PerTensor, kNvfp4AsE4m3, kBf16},
                              {kE4m3PerTensor, kNvfp4AsE4m3, kE4m3PerTensor}};

Element side_of(const Types& t) { return t.y.scaled() ? Element::f16 : t.y.element; }

// Rows around tiles of 16, 32 and 64 tokens; channels of less than a group, of one, of two and more, with tails; k of
// one block of scales, of tails of blocks and of stages, and of more stages than a ring holds.
std::vector<Problem> nibble_problems() {
  std::vector<Problem> all;
  for (const Types& t : kNibbleTypes) {
    for (const Shape& s : {Shape{1, 16, 16}, Shape{1, 128, 64}, Shape{7, 144, 80}, Shape{16, 256, 128},
                           Shape{17, 272, 208}, Shape{33, 528, 336}, Shape{64, 1024, 192}, Shape{65, 2064, 144},
                           Shape{150, 384, 272}, Shape{10, 8192, 64}, Shape{50, 4096, 208}})
      all.push_back(problem(t, {s[0], s[1]}, s[2], "b", side_of(t)));
    for (const char* program : {"", "s", "bg", "bt", "bq", "bi", "bu", "bgs", "bI", "T", "bsQ"}) {
      for (const int64_t m : {5, 40}) {
        const bool gate = std::string(program).find_first_of("IT") != std::string::npos;
        all.push_back(problem(t, {m, 400}, gate ? 384 : 208, program, side_of(t)));
      }
    }
    if (t.y == kF16 || t.y == kBf16) {
      for (const char* program : {"r", "br", "bgr", "bSr"})
        all.push_back(problem(t, {70, 400}, 208, program, side_of(t)));
    }
    Problem gaps = problem(t, {20, 256}, 208, "b", side_of(t));
    gaps.in[0] = gapped({20, 256}, t.x, 64);
    all.push_back(gaps);
  }
  return all;
}

// The layers of the policies that 4-bit weights are for.
std::vector<Problem> real_nibble_problems() {
  std::vector<Problem> all;
  for (const Types& t : {kNibbleTypes[0], kNibbleTypes[2]}) {
    for (const int64_t m : {1, 10, 16, 50, 64}) {
      all.push_back(problem(t, {m, 4096}, 1024, "r", side_of(t)));
      all.push_back(problem(t, {m, 1024}, 8192, "I", side_of(t)));
    }
    all.push_back(problem(t, {10, 2048}, 32768, "", side_of(t)));
  }
  return all;
}

std::vector<const Variant*> nibble_variants() { return {find_variant("matmul/sm90_w4")}; }

class NibbleMatmul : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& problems, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : problems) check_variant(*GetParam(), p, ++seed, values);
  }
};

TEST_P(NibbleMatmul, AgreesOnRandom) { run(nibble_problems(), Values::kRandom); }
TEST_P(NibbleMatmul, AgreesOnZeros) { run(nibble_problems(), Values::kZeros); }
TEST_P(NibbleMatmul, AgreesOnExtremes) { run(nibble_problems(), Values::kExtremes); }
TEST_P(NibbleMatmul, AgreesOnRealShapes) { run(real_nibble_problems(), Values::kRandom); }

INSTANTIATE_TEST_SUITE_P(Variants, NibbleMatmul, ::testing::ValuesIn(nibble_variants()), short_name);

TEST(NibblePower, MutationsAreCaught) { expect_power_of_all(op(), nibble_problems()); }

// What a kernel would give, by the emulation of each of its shapes, is near the exact result: within the bound that
// others are held to, which knows nothing of the order of sums.
TEST(NibbleEmulation, IsWithinTheBoundOfItsArithmetic) {
  for (const Variant* v : nibble_variants()) {
    Variant bounded = *v;
    bounded.emulate = nullptr;
    uint64_t seed = 1;
    for (const Problem& p : nibble_problems()) {
      if (!v->accepts(p) || p.out[0].type.scaled() || p.out[0].type == kF32) continue;
      Case c = make_case(p, ++seed);
      const Judge bound = judge_of(bounded, c);
      for (const std::string& config : configs_of(*v, p)) {
        c.problem.config = config;
        const Judge emulated = judge_of(*v, c);
        ASSERT_TRUE(emulated.emulated());
        const Operand& y = p.out[0];
        Buffer codes(static_cast<size_t>(packed_bytes(y.type.element, elements(y.shape))));
        encode_units(y.type, emulated.middle(0), codes.data());
        const TensorView got[] = {{.desc = &y, .data = codes.data()}};
        EXPECT_TRUE(bound.of(got).ok()) << v->name << " on " << c.text() << " " << config;
      }
    }
  }
}

// On Hopper 4-bit weights run by these variants alone, in the arithmetic that their type asks for, and lie as they are
// read.
TEST(NibbleContract, RunsWhatItSays) {
  for (const Types& t : kNibbleTypes) {
    const Problem p = problem(t, {10, 256}, 128, "b", side_of(t));
    int hopper = 0;
    for (const Variant* v : op().variants) {
      if (v->arch == Arch::cpu || !v->accepts(p)) continue;
      ++hopper;
      const bool half = t.x == kF16;
      EXPECT_STREQ(v->name, "matmul/sm90_w4");
      EXPECT_EQ(v->arithmetic(p).computed, half ? Element::f16 : Element::e4m3);
      EXPECT_EQ(v->arithmetic(p).operand_error, 0);
      const std::vector<OperandLayout> layouts = v->layouts(p);
      EXPECT_EQ(layouts[1].codes, half ? Layout::kNibbles16 : Layout::kNibbles8);
      EXPECT_EQ(layouts[1].scales, Layout::kTiles32x8);
    }
    EXPECT_EQ(hopper, 1);
  }
}

TEST(NibbleContract, SaysWhatItDoesNotTake) {
  const Variant& own = *nibble_variants()[0];
  const auto refusal = [](const Variant& v, const Types& t, const Shape& x, int64_t n, const char* program = "b") {
    return v.accepts(problem(t, x, n, program, Element::f16)).refusal;
  };
  const auto says = [](const std::string& refusal, const char* words) {
    return refusal.find(words) != std::string::npos ? "" : "says '" + refusal + "'";
  };
  EXPECT_EQ(refusal(own, {kF16, kNvfp4, kF16}, {10, 256}, 128), "");
  EXPECT_EQ(refusal(own, {kE4m3PerTensor, kNvfp4AsE4m3, kF16}, {10, 256}, 128), "");
  EXPECT_EQ(says(refusal(own, {running(kNvfp4), kNvfp4, kF16}, {10, 256}, 128),
                 "reads f16, or e4m3 with one static scale, not e2m1:block16"),
            "");
  EXPECT_EQ(
      says(refusal(own, {kBf16, kNvfp4, kBf16}, {10, 256}, 128), "reads f16, or e4m3 with one static scale, not bf16"),
      "");
  EXPECT_EQ(says(refusal(own, {kF16, kNvfp4AsE4m3, kF16}, {10, 256}, 128), "multiplies f16 by weights of e2m1"), "");
  EXPECT_EQ(says(refusal(own, {kF16, kMxfp8, kF16}, {10, 256}, 128), "4-bit weights, here e4m3"), "");
  EXPECT_EQ(says(refusal(own, {kE4m3PerTensor, kNvfp4, kF16}, {10, 256}, 128), "as(e4m3), not"), "");
  EXPECT_EQ(says(refusal(own, {kE4m3PerToken, kNvfp4AsE4m3, kF16}, {10, 256}, 128), "one static scale"), "");
  EXPECT_EQ(says(refusal(own, {kF16, kNvfp4, kF16}, {10, 252}, 128), "multiples of 16 bytes"), "");
  EXPECT_EQ(says(refusal(own, {kF16, kNvfp4, kF16}, {10, 256}, 96, "bI"), "multiples of 32 channels, here 48"), "");
  Problem sparse = problem({kF16, kNvfp4, kF16}, {10, 256}, 128, "b", Element::f16);
  sparse.attrs.set(kSparse24, int64_t{1});
  EXPECT_EQ(says(own.accepts(sparse).refusal, "dense weights"), "");
  // More rows run, and are said to be slow.
  const Problem many = problem({kF16, kNvfp4, kF16}, {65, 256}, 128, "b", Element::f16);
  EXPECT_TRUE(own.accepts(many));
  EXPECT_EQ(says(own.worthwhile(many).refusal, "fp8 is faster"), "");
  EXPECT_TRUE(own.worthwhile(problem({kF16, kNvfp4, kF16}, {64, 256}, 128, "b", Element::f16)));
}

}  // namespace
}  // namespace tessera
