// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/test_problems.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "testing/mutations.h"

namespace tessera {
namespace {

// Every type that activations and weights come in, and weights as others write them: other blocks, other scales.
const char* const kXTypes[] = {"f32",
                               "f16",
                               "bf16",
                               "e4m3:tensor(f32)",
                               "e4m3:token(f32)!",
                               "e4m3:block32(e8m0)!",
                               "e2m1:block16(e4m3):tensor(f32)!",
                               "i8:tensor(f32)",
                               "i8:token(f32)!"};
const char* const kWTypes[] = {"f32",
                               "f16",
                               "bf16",
                               "e4m3:channel(f32)",
                               "e4m3:tensor(f32)",
                               "e4m3:block32(e8m0)",
                               "e2m1:block16(e4m3):tensor(f32)",
                               "e2m1:block16(e4m3):tensor(f32):as(e4m3)",
                               "i8:channel(f32)",
                               "i8:tensor(f32)",
                               "i4:channel(f32)",
                               "i4:block32(f16)",
                               "i4:block6(f32)",
                               "i8:block64(f32)",
                               "e2m1:block32(e8m0)",
                               "e2m1:block16(f16):channel(f32)",
                               "e4m3:block128(f32)",
                               "e4m3:channel(f16)",
                               "e5m2:tensor(f32)"};

// Every type over shapes of one, odd ones, and around the multiples of 8, 16, 32, 64 and 128 that kernels cut matrices
// into.
std::vector<Problem> small_problems() {
  const Shape shapes[] = {{1, 1, 1},      {1, 16, 16},    {3, 5, 7},       {2, 15, 17},    {16, 16, 16},
                          {17, 33, 31},   {7, 64, 48},    {31, 48, 64},    {32, 32, 32},   {33, 16, 80},
                          {65, 127, 129}, {64, 112, 144}, {128, 128, 128}, {129, 144, 272}};
  const char* const programs[] = {"", "b", "bg", "bt", "bq", "bi", "bu", "br", "bsr", "bgs", "bgr", "bgsr", "r", "bR"};
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const Shape& s : shapes) {
      all.push_back(problem(t, {s[0], s[2]}, s[1], "", side));
      all.push_back(problem(t, {s[0], s[2]}, s[1], "br", side));
    }
    for (const char* program : programs) {
      all.push_back(problem(t, {3, 16, 32}, 48, program, side));
      all.push_back(problem(t, {1, 33, 64}, 80, program, side));
      all.push_back(problem(t, {2, 5, 16}, 32, program, Element::f32));
    }
  }
  return all;
}

// Layers of a ViT-B and of its head.
std::vector<Problem> real_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    all.push_back(problem(t, {1, 197, 768}, 768, "br", side));
    all.push_back(problem(t, {2, 3072}, 768, "b", side));
    all.push_back(problem(t, {1, 3072}, 768, "b", side));
    all.push_back(problem(t, {1, 50, 768}, 3072, "bg", side));
    all.push_back(problem(t, {8, 768}, 1000, "b", side));
    all.push_back(problem(t, {3, 65, 192}, 272, "R", side));  // positions of tokens, the same for every image
    all.push_back(problem(t, {5, 256, 192}, 272, "bR", side));
    for (const char* program : {"b", "bg", "br"})
      all.push_back(problem(t, {1, 1100, 192}, 272, program, side));  // many tiles, with tails
  }
  return all;
}

// Few rows, around the tiles of tokens (16, 32, 64, 112), with every program; k from 16 bytes to what is split over
// many blocks; tails of n.
std::vector<Problem> few_row_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const int64_t m : {1, 7, 16, 17, 64, 65, 197, 300}) {
      for (const char* program : {"", "b", "bg", "bt", "bq", "bi", "bu", "br", "bsr", "bgs", "bgr", "bgsr", "r"})
        all.push_back(problem(t, {m, 144}, 80, program, side));
    }
    if (t.y.element == Element::f32) {  // logits: columns that are no multiple of eight too
      for (const int64_t n : {12, 100, 1000}) all.push_back(problem(t, {9, 144}, n, n == 100 ? "" : "b", side));
    }
    for (const int64_t k : {8, 16, 128, 272, 512, 784, 2048, 4096, 16384}) {
      for (const int64_t m : {1, 10, 50})
        all.push_back(problem(t, {m, k}, m == 10 ? 208 : 48, k % 32 == 0 ? "bg" : "br", side));
    }
  }
  return all;
}

// Gates over halves of one column, of odd numbers, around boxes of 32 results and tiles of 64 and 96, rows around 64
// and 128, with each function; one with many tiles and tails.
std::vector<Problem> gated_problems() {
  const Shape shapes[] = {{1, 2, 1},       {3, 10, 7},      {1, 16, 16},     {7, 32, 48},
                          {64, 48, 64},    {65, 64, 128},   {63, 80, 144},   {127, 112, 272},
                          {128, 128, 128}, {129, 144, 784}, {33, 176, 1040}, {300, 192, 96},
                          {130, 208, 64},  {64, 256, 2048}, {5, 272, 400},   {40, 400, 16384}};
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const Shape& s : shapes) {
      all.push_back(problem(t, {s[0], s[2]}, s[1], "I", side));
      all.push_back(problem(t, {s[0], s[2]}, s[1], "bT", side));
    }
    for (const char* program : {"G", "T", "Q", "I", "bG", "bT", "bQ", "bI"})
      all.push_back(problem(t, {2, 33, 64}, 224, program, side));
    all.push_back(problem(t, {1, 1100, 192}, 1312, "bG", side));
  }
  return all;
}

// FP8 whose sums are to be promoted: k of one block of 128, of an odd and an even number of them, with tails.
std::vector<Problem> promoted_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    if (t.x.element != Element::e4m3) continue;
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const int64_t k : {16, 128, 144, 256, 272, 384, 768, 3072}) {
      for (const int64_t m : {1, 64, 65, 300})
        all.push_back(problem(t, {m, k}, m == 64 ? 128 : 144, k % 256 == 0 ? "bg" : "br", side));
    }
    for (const char* program : {"bsr", "bgs", "bgr", "bgsr"})
      all.push_back(problem(t, {1100, 192}, 272, program, side));
  }
  for (Problem& p : all) p.attrs.set(kPromoted, int64_t{1});
  return all;
}

// Rows with gaps, and products of two activations with leading axes.
std::vector<Problem> strided_problems() {
  std::vector<Problem> all;
  for (const QuantType& t : {kF32, kF16, kBf16}) {
    for (const Shape& s : {Shape{5, 9, 7}, Shape{33, 16, 64}, Shape{64, 48, 32}}) {
      all.push_back(make_problem("matmul", {gapped({s[0], s[2]}, t, 16), dense_operand({s[1], s[2]}, t, true)}));
      all.push_back(
          make_problem("matmul", {dense_operand({2, 3, s[0], s[2]}, t), dense_operand({2, 3, s[1], s[2]}, t)}));
      all.push_back(make_problem("matmul", {gapped({3, s[0], s[2]}, t, 8), gapped({3, s[1], s[2]}, t, 24)}));
    }
  }
  return all;
}

// Both ends of folded norms: rows around the tiles of tokens, groups of 64 columns whole and with tails on
// either side, K split over blocks, both kinds of norm.
std::vector<Problem> folded_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const int64_t m : {1, 7, 17, 64, 197, 300}) {
      for (const char* program : {"n", "nb", "nbg", "nbr"}) all.push_back(problem(t, {m, 144}, 80, program, side));
      for (const char* program : {"m", "brm", "brcm", "bgc", "nbsrcm"})
        all.push_back(problem(t, {m, 144}, m == 17 ? 200 : 80, program, side));
    }
    for (const int64_t k : {16, 64, 208, 784, 2048, 4096}) {
      all.push_back(problem(t, {50, k}, 208, "nbg", side));
      all.push_back(problem(t, {50, k}, 208, "nbrcm", side));
    }
    all.push_back(problem(t, {1, 197, 768}, 768, "brcm", side));
    all.push_back(problem(t, {1, 197, 768}, 2304, "nb", side));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    Problem& p = all[i];
    if (i % 3 == 0) p.attrs.set(kFoldedKind, std::string("rms"));
    if (const int codes = ExtraResults::of(p.attrs).codes; codes > 0 && p.in[0].type.element == Element::i8)
      p.out[static_cast<size_t>(codes)].type = kInt8PerTensor;
  }
  return all;
}

// Codes times a gain: of a result with its residual, with and without moments, in 8 bits and as the result is; gains of
// f32 and of the result's type; rows around the tiles of tokens, tails of 64 columns, K split.
std::vector<Problem> gained_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    if (t.y.scaled()) continue;
    const Element side = t.y.element;
    const QuantType codes = t.x.element == Element::i8 ? kInt8PerTensor : kE4m3PerTensor;
    for (const QuantType& type : {codes, t.y}) {
      for (const int64_t m : {1, 10, 17, 64, 197}) {
        for (const char* program : {"C", "SrCm", "bgCm", "nbsrCm"}) {
          all.push_back(problem(t, {m, 144}, m == 17 ? 200 : 80, program, side));
          all.back().out[1].type = type;
        }
      }
      for (const int64_t k : {16, 784, 4096}) {
        all.push_back(problem(t, {50, k}, 208, "SrCm", side));
        all.back().out[1].type = type;
        all.back().in[static_cast<size_t>(ExtraResults::of(all.back().attrs).gain)].type = t.y;
      }
    }
  }
  return all;
}

// Scales that an earlier kernel computes: few rows and many, whole tiles and tails.
std::vector<Problem> computed_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const Shape& s :
         {Shape{1, 16, 16}, {7, 64, 48}, {33, 16, 80}, {65, 128, 144}, {129, 144, 272}, {300, 80, 144}})
      all.push_back(problem(t, {s[0], s[2]}, s[1], "Sr", side));
  }
  return all;
}

// Gates behind a folded norm.
std::vector<Problem> folded_gates() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const int64_t m : {1, 10, 65}) {
      all.push_back(problem(t, {m, 144}, 176, "nI", side));
      for (const Element vector : {side, Element::bf16}) {
        all.push_back(problem(t, {m, 400}, 96, "nbT", vector));
        all.back().attrs.set(kFoldedKind, std::string("rms"));
      }
    }
  }
  return all;
}

// Sums of squares are positive, and about as large as 64 numbers of about 1 have them.
void draw_moments(const Problem& p, size_t i, std::vector<double>& v) {
  const Step* step = p.then.find(StepKind::normalise);
  if (step == nullptr || i != static_cast<size_t>(step->operand)) return;
  for (size_t at = 1; at < v.size(); at += 2) v[at] = 64 * std::fabs(v[at]) + 1;
}

// Every type of x with every type of w, dense and 2:4 sparse: shapes of nothing, of one, odd ones, k inside and beyond
// blocks of scales and of k, and weights of several matrices.
std::vector<Problem> mixed_problems() {
  const Shape shapes[] = {{0, 16, 32}, {4, 0, 32},   {1, 1, 1},    {3, 5, 7},
                          {7, 33, 31}, {17, 16, 68}, {2, 50, 100}, {5, 20, 802}};
  std::vector<Problem> all;
  for (const char* x : kXTypes) {
    for (const char* w : kWTypes) {
      const QuantType x_type = *parse_quant_type(x), w_type = *parse_quant_type(w);
      for (const Attrs& attrs : {Attrs{}, Attrs{{kSparse24, int64_t{1}}}}) {
        for (const Shape& s : shapes)
          all.push_back(make_problem("matmul",
                                     {dense_operand({s[0], s[2]}, x_type), dense_operand({s[1], s[2]}, w_type, true)},
                                     attrs, {}, kF32));
        all.push_back(make_problem(
            "matmul", {dense_operand({3, 5, 50}, x_type), dense_operand({3, 18, 50}, w_type, true)}, attrs, {}, kF32));
      }
    }
  }
  return all;
}

class MatmulVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& problems, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : problems) check_variant(*GetParam(), p, seed++, values, prune);
  }
};

TEST_P(MatmulVariant, AgreesOnRandom) { run(small_problems(), Values::kRandom); }
TEST_P(MatmulVariant, AgreesOnZeros) { run(small_problems(), Values::kZeros); }
TEST_P(MatmulVariant, AgreesOnExtremes) { run(small_problems(), Values::kExtremes); }
TEST_P(MatmulVariant, AgreesOnRealShapes) { run(real_problems(), Values::kRandom); }
TEST_P(MatmulVariant, AgreesOnFewRows) { run(few_row_problems(), Values::kRandom); }
// A persistent kernel's blocks take several tiles each, also of an H200's 132 blocks, in turns that hand rings, tables
// and residuals over.
TEST_P(MatmulVariant, AgreesOverManyTiles) {
  if (info(GetParam()->arch).device != DeviceKind::kCuda) GTEST_SKIP() << "takes no tiles in turns";
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const char* program : {"b", "br", "bg", "bgsr", "bI"})
      all.push_back(problem(t, {9001, 208}, 1056, program, side));
    if (t.x.element != Element::e4m3) continue;
    for (const char* program : {"b", "br", "bg"}) {
      all.push_back(problem(t, {9001, 208}, 1056, program, side));
      all.back().attrs.set(kPromoted, int64_t{1});
    }
  }
  run(all, Values::kRandom);
}
TEST_P(MatmulVariant, AgreesOnPromotedSums) {
  run(promoted_problems(), Values::kRandom);
  run(promoted_problems(), Values::kExtremes);
}
TEST_P(MatmulVariant, AgreesOnGates) {
  run(gated_problems(), Values::kRandom);
  run(gated_problems(), Values::kExtremes);
}
TEST_P(MatmulVariant, AgreesOnRealGates) {
  std::vector<Problem> all;
  for (const Types& t : kTypes)
    all.push_back(problem(t, {1, 257, 768}, 2 * 2048, "bI", info(t.y.element).bits == 8 ? Element::f16 : t.y.element));
  run(all, Values::kRandom);
}
TEST_P(MatmulVariant, AgreesOnFoldedNorms) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  uint64_t seed = 1;
  for (const Problem& p : folded_problems()) {
    check_variant(*GetParam(), p, seed, Values::kRandom, draw_moments);
    check_variant(*GetParam(), p, seed++, Values::kZeros, draw_moments);
  }
}
TEST_P(MatmulVariant, AgreesOnFoldedGates) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  uint64_t seed = 1;
  for (const Problem& p : folded_gates()) check_variant(*GetParam(), p, seed++, Values::kRandom, draw_moments);
}
TEST_P(MatmulVariant, AgreesOnGainedCodes) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  uint64_t seed = 1;
  for (const Problem& p : gained_problems()) check_variant(*GetParam(), p, seed++, Values::kRandom, draw_moments);
}
TEST_P(MatmulVariant, AgreesOnComputedScales) { run(computed_problems(), Values::kRandom); }
TEST_P(MatmulVariant, AgreesOnStrides) { run(strided_problems(), Values::kRandom); }
TEST_P(MatmulVariant, AgreesOnMixedTypes) { run(mixed_problems(), Values::kRandom); }
TEST_P(MatmulVariant, AgreesOnMixedExtremes) { run(mixed_problems(), Values::kExtremes); }
TEST_P(MatmulVariant, AgreesOnRealSparseShapes) {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    all.push_back(problem(t, {1, 50, 768}, 784, "bg", Element::f16));
    all.back().attrs.set(kSparse24, int64_t{1});
  }
  run(all, Values::kRandom);
}
TEST_P(MatmulVariant, LosesNoMoreThanSubnormals) {
  const auto tiny = [](const Problem&, size_t i, std::vector<double>& v) {
    for (size_t at = 0; at < v.size(); ++at)
      v[at] = std::ldexp(1 + static_cast<double>(at % 5) / 8, i == 0 ? -130 + static_cast<int>(at % 9) : 100);
  };
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  if (info(GetParam()->arch).device != DeviceKind::kHost) GTEST_SKIP() << "states no such bound";
  check_variant(*GetParam(), problem({kBf16, kBf16, kF32}, {7, 64}, 18, "", Element::f32), 1, Values::kRandom, tiny);
}
TEST_P(MatmulVariant, Sanitize) {
  std::vector<Problem> some;
  for (const Types& t : kTypes) {
    some.push_back(problem(t, {33, 64}, 48, "br", Element::f16));
    some.push_back(problem(t, {3, 32}, 16, "bg", Element::f16));
    some.push_back(problem(t, {5, 7}, 3, "", Element::f32));
    some.push_back(problem(t, {33, 64}, 96, "bI", Element::f16));
    some.push_back(problem(t, {33, 272}, 80, "nbrcm", Element::f16));
    some.push_back(problem(t, {33, 272}, 80, "SrCm", Element::f16));
  }
  uint64_t seed = 1;
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const Problem& p : some) check_variant(*GetParam(), p, seed++, Values::kRandom, draw_moments);
}

// The same operands give the same bits, run after run, in whichever order rows are walked.
TEST_P(MatmulVariant, IsReproducible) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const Types& t : kTypes) {
    const Problem p = problem(t, {65, 784}, 144, "b", Element::f16);
    if (!GetParam()->accepts(p)) continue;
    Case c = make_case(p, 5);
    const auto first = run_on(*GetParam(), c);
    c.problem.backward = true;
    const auto second = run_on(*GetParam(), c);
    ASSERT_TRUE(first.ok() && second.ok());
    const Buffer &a = (*first)[0].data, &b = (*second)[0].data;
    EXPECT_TRUE(std::equal(a.data(), a.data() + a.size(), b.data())) << c.text();
  }
}

// What every check above would see of a wrong kernel, with and without a device (testing/mutations.h).
// A test for each list: they take minutes, and shards hold whole tests.
TEST(MatmulPower, MutationsOfSmallProblemsAreCaught) { expect_power_of_all(op(), small_problems()); }
TEST(MatmulPower, MutationsOfRealProblemsAreCaught) { expect_power_of_all(op(), real_problems()); }
TEST(MatmulPower, MutationsOfFewRowProblemsAreCaught) { expect_power_of_all(op(), few_row_problems()); }
TEST(MatmulPower, MutationsOfPromotedProblemsAreCaught) { expect_power_of_all(op(), promoted_problems()); }
TEST(MatmulPower, MutationsOfGatedProblemsAreCaught) { expect_power_of_all(op(), gated_problems()); }
TEST(MatmulPower, MutationsOfStridedProblemsAreCaught) { expect_power_of_all(op(), strided_problems()); }
TEST(MatmulPower, MutationsOfMixedProblemsAreCaught) { expect_power_of_all(op(), mixed_problems()); }
TEST(MatmulPower, MutationsOfComputedProblemsAreCaught) { expect_power_of_all(op(), computed_problems()); }
TEST(MatmulPower, MutationsOfFoldedNormsAreCaught) { expect_power_of_all(op(), folded_problems(), draw_moments); }
TEST(MatmulPower, MutationsOfFoldedGatesAreCaught) { expect_power_of_all(op(), folded_gates(), draw_moments); }
TEST(MatmulPower, MutationsOfGainedCodesAreCaught) { expect_power_of_all(op(), gained_problems(), draw_moments); }

INSTANTIATE_TEST_SUITE_P(Variants, MatmulVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(MatmulContract, EveryVariantAcceptsSomething) {
  std::vector<Problem> all = small_problems();
  for (const Problem& p : promoted_problems()) all.push_back(p);
  for (const int type : {1, 4, 10}) {  // 2:4 sparse weights: sparse_test.cc has more
    all.push_back(problem(kTypes[type], {64, 64}, 64, "b", Element::f16));
    all.back().attrs.set(kSparse24, int64_t{1});
  }
  expect_each_accepts(op(), all);
}
// Whoever takes a problem whose sums are to be promoted has sums of f32 or promotes them in time.
TEST(MatmulContract, PromotedSumsArePromoted) {
  for (const Problem& p : promoted_problems()) {
    for (const Variant* v : op().variants) {
      if (!v->accepts(p)) continue;
      const Arithmetic a = v->arithmetic(p);
      EXPECT_TRUE(a.accumulator_bits >= 22 || (a.promote_every > 0 && a.promote_every <= 128))
          << v->name;  // 22: as matrix units keep f32
    }
  }
}

// Kernels of whole tiles run gates, with nothing but bias and quantize beside them; no other kernel takes a matmul for
// one of fewer columns.
TEST(MatmulContract, GatesRunWhereHalvesMeet) {
  std::set<std::string> took;
  for (const Problem& p : gated_problems()) {
    for (const Variant* v : op().variants) {
      if (v->accepts(p)) took.insert(v->name);
    }
  }
  EXPECT_EQ(took, (std::set<std::string>{"matmul/sm90_f16", "matmul/sm90_fp8", "matmul/sm90_fp8_token",
                                         "matmul/sm90_int8", "matmul/sm90_swapped", "matmul/sm90_w4"}));
  const Types& f16 = kTypes[1];
  for (const Variant* v : op().variants) {
    for (const char* program : {"bH", "iI", "bsI", "bIm", "Ic"})
      EXPECT_FALSE(v->accepts(problem(f16, {64, 64}, 64, program, Element::f16))) << v->name << " " << program;
    EXPECT_FALSE(v->accepts(problem(f16, {64, 64}, 8, "bI", Element::f16))) << v->name << ": rows of y are 8 bytes";
  }
}

// Moments are written and read by the kernels that say so; in any other kernel a folded norm would be lost in
// silence.
TEST(MatmulContract, FoldedNormsRunWhereBothEndsDo) {
  std::set<std::string> took;
  for (const Problem& p : folded_problems()) {
    for (const Variant* v : op().variants) {
      if (v->accepts(p)) took.insert(v->name);
    }
  }
  EXPECT_EQ(took, (std::set<std::string>{"matmul/sm90_swapped", "matmul/sm90_w4"}));
}

// On the CPU everything runs, and by what the numbers allow: int8 by int8, what bf16 holds by bf16, the rest in fp32.
TEST(MatmulContract, TheCpuRunsEveryPairOfTypes) {
  for (const Problem& p : mixed_problems()) {
    const Variant* first = nullptr;
    for (const Variant* v : op().variants) {
      if (first == nullptr && v->arch == Arch::cpu && v->accepts(p)) first = v;
    }
    ASSERT_NE(first, nullptr) << to_string(p.in[0].type) << " x " << to_string(p.in[1].type);
    const auto long_digits = [](Element e) { return e == Element::f32 || e == Element::f16; };
    const auto wide = [&](const QuantType& t) {
      return long_digits(t.element) || (t.scale.granularity == Granularity::kBlock && long_digits(t.scale.element));
    };
    const bool int8 = p.in[0].type.element == Element::i8 && p.in[1].type.element == Element::i8 && !wide(p.in[1].type);
    EXPECT_EQ(first->arithmetic(p).computed, int8                                       ? Element::i8
                                             : wide(p.in[0].type) || wide(p.in[1].type) ? Element::f32
                                                                                        : Element::bf16)
        << to_string(p.in[0].type) << " x " << to_string(p.in[1].type);
    const Layout stored = first->layouts(p)[1].codes;
    EXPECT_EQ(stored == Layout::kSparse24, is_sparse24(p));
  }
}

}  // namespace
}  // namespace tessera
