// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ops/reference.h"
#include "testing/variant_harness.h"
#include "types/e4m3.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("matmul"); }

struct Types {
  QuantType x, w, y;
};
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;
const QuantType kI8PerTensor{Element::i8, {Granularity::kTensor, Element::f32}}, kI8PerChannel{Element::i8, {Granularity::kChannel, Element::f32}};
QuantType running(QuantType type) {
  type.dynamic = true;
  return type;
}
const QuantType kE4m3PerToken = running({Element::e4m3, {Granularity::kToken, Element::f32}});
const Types kTypes[] = {
    {kF32, kF32, kF32},
    {kF16, kF16, kF16},
    {kF16, kF16, kF32},
    {kBf16, kBf16, kBf16},
    {kE4m3PerTensor, kE4m3PerChannel, kF16},
    {kE4m3PerTensor, kE4m3PerTensor, kF16},
    {kE4m3PerTensor, kE4m3PerChannel, kF32},
    {kE4m3PerTensor, kE4m3PerChannel, kE4m3PerTensor},
    {kE4m3PerTensor, kE4m3PerTensor, kE4m3PerTensor},
    {kF16, kF16, kE4m3PerTensor},
    {kI8PerTensor, kI8PerChannel, kF16},
    {kI8PerTensor, kI8PerChannel, kF32},
    {kE4m3PerTensor, kE4m3PerChannel, kBf16},
    {kI8PerTensor, kI8PerTensor, kI8PerTensor},
    {kI8PerTensor, kI8PerChannel, kI8PerTensor},
    {kE4m3PerToken, kE4m3PerChannel, kF16},
    {running(kMxfp8), kMxfp8, kF16},
    {running(kNvfp4), kNvfp4, kF16},
    {kF16, kNvfp4, kF16},
    {kE4m3PerTensor, kNvfp4AsE4m3, kF16},
};

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

// Programs by name: the operands that they need are appended to the inputs. b bias, s scale, r residual, R residual of
// `few` rows; else an activation, or in capitals a gate, which leaves n / 2 columns.
Problem problem(const Types& t, const Shape& x, int64_t n, const std::string& program, Element side) {
  const int64_t k = x.back();
  std::vector<Operand> in = {dense_operand(x, t.x), dense_operand({n, k}, t.w, /*constant=*/true)};
  Program then;
  const auto with = [&](StepKind kind, const Shape& shape, Element e) {
    then.steps.push_back({.kind = kind, .operand = static_cast<int>(in.size())});
    in.push_back(dense_operand(shape, e, kind != StepKind::residual));
  };
  Shape y = x;
  y.back() = n;
  for (char c : program) {
    if (c == 'b') with(StepKind::bias, {n}, side);
    if (c == 's') with(StepKind::scale, {n}, side);
    if (c == 'r') with(StepKind::residual, y, side);
    if (c == 'R') with(StepKind::residual, {x[x.size() - 2], n}, side);
    if (c == 'g') then.steps.push_back({.kind = StepKind::act, .fn = Unary::gelu_erf});
    if (c == 't') then.steps.push_back({.kind = StepKind::act, .fn = Unary::gelu_tanh});
    if (c == 'q') then.steps.push_back({.kind = StepKind::act, .fn = Unary::gelu_quick});
    if (c == 'i') then.steps.push_back({.kind = StepKind::act, .fn = Unary::silu});
    if (c == 'u') then.steps.push_back({.kind = StepKind::act, .fn = Unary::relu});
    if (c == 'G') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::gelu_erf});
    if (c == 'T') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::gelu_tanh});
    if (c == 'Q') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::gelu_quick});
    if (c == 'I') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::silu});
    if (c == 'U') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::relu});
  }
  if (t.y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("matmul", std::move(in), {}, std::move(then), t.y);
}

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

// Few rows, around the tiles of tokens (16, 32, 64, 112), with every program; k from 16 bytes to what is split over many blocks; tails of n.
std::vector<Problem> few_row_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const int64_t m : {1, 7, 16, 17, 64, 65, 197, 300}) {
      for (const char* program : {"", "b", "bg", "bt", "bq", "bi", "bu", "br", "bsr", "bgs", "bgr", "bgsr", "r"}) all.push_back(problem(t, {m, 144}, 80, program, side));
    }
    if (t.y.element == Element::f32) {  // logits: columns that are no multiple of eight too
      for (const int64_t n : {12, 100, 1000}) all.push_back(problem(t, {9, 144}, n, n == 100 ? "" : "b", side));
    }
    for (const int64_t k : {8, 16, 128, 272, 512, 784, 2048, 4096, 16384}) {
      for (const int64_t m : {1, 10, 50}) all.push_back(problem(t, {m, k}, m == 10 ? 208 : 48, k % 32 == 0 ? "bg" : "br", side));
    }
  }
  return all;
}

// Gates over halves of one column, of odd numbers, around boxes of 32 results and tiles of 64 and 96, rows around 64 and 128, with each function; one with many tiles and tails.
std::vector<Problem> gated_problems() {
  const Shape shapes[] = {{1, 2, 1},      {3, 10, 7},      {1, 16, 16},     {7, 32, 48},      {64, 48, 64},     {65, 64, 128},
                          {63, 80, 144},  {127, 112, 272}, {128, 128, 128}, {129, 144, 784},  {33, 176, 1040}, {300, 192, 96},
                          {130, 208, 64}, {64, 256, 2048}, {5, 272, 400},   {40, 400, 16384}};
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const Shape& s : shapes) {
      all.push_back(problem(t, {s[0], s[2]}, s[1], "I", side));
      all.push_back(problem(t, {s[0], s[2]}, s[1], "bT", side));
    }
    for (const char* program : {"G", "T", "Q", "I", "bG", "bT", "bQ", "bI"}) all.push_back(problem(t, {2, 33, 64}, 224, program, side));
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
      for (const int64_t m : {1, 64, 65, 300}) all.push_back(problem(t, {m, k}, m == 64 ? 128 : 144, k % 256 == 0 ? "bg" : "br", side));
    }
    for (const char* program : {"bsr", "bgs", "bgr", "bgsr"}) all.push_back(problem(t, {1100, 192}, 272, program, side));
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

// Drops two numbers of each four of a weight that is to be 2:4 sparse, at places that differ from group to group.
void prune(const Problem& p, size_t i, std::vector<double>& v) {
  if (i != 1 || !is_sparse24(p)) return;
  const size_t cols = static_cast<size_t>(p.in[1].shape.back()), groups = (cols + 3) / 4;
  for (size_t at = 0; at < v.size(); ++at) {
    const size_t col = at % cols, group = at / cols * groups + col / 4, first = group % 4, second = (first + 1 + group / 4 % 3) % 4;
    if (col % 4 == first || col % 4 == second) v[at] = 0;
  }
}

// Every type of x with every type of w, dense and 2:4 sparse: shapes of nothing, of one, odd ones, k inside and beyond blocks of scales and of k, and
// weights of several matrices.
std::vector<Problem> mixed_problems() {
  const Shape shapes[] = {{0, 16, 32}, {4, 0, 32}, {1, 1, 1}, {3, 5, 7}, {7, 33, 31}, {17, 16, 68}, {2, 50, 100}, {5, 20, 802}};
  std::vector<Problem> all;
  for (const char* x : kXTypes) {
    for (const char* w : kWTypes) {
      const QuantType x_type = *parse_quant_type(x), w_type = *parse_quant_type(w);
      for (const Attrs& attrs : {Attrs{}, Attrs{{kSparse24, int64_t{1}}}}) {
        for (const Shape& s : shapes)
          all.push_back(make_problem("matmul", {dense_operand({s[0], s[2]}, x_type), dense_operand({s[1], s[2]}, w_type, true)}, attrs, {}, kF32));
        all.push_back(make_problem("matmul", {dense_operand({3, 5, 50}, x_type), dense_operand({3, 18, 50}, w_type, true)}, attrs, {}, kF32));
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
// A persistent kernel's blocks take several tiles each, also of an H200's 132 blocks, in turns that hand rings, tables and residuals over.
TEST_P(MatmulVariant, AgreesOverManyTiles) {
  if (info(GetParam()->arch).device != DeviceKind::kCuda) GTEST_SKIP() << "takes no tiles in turns";
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const char* program : {"b", "br", "bg", "bgsr", "bI"}) all.push_back(problem(t, {9001, 208}, 1056, program, side));
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
  for (const Types& t : kTypes) all.push_back(problem(t, {1, 257, 768}, 2 * 2048, "bI", info(t.y.element).bits == 8 ? Element::f16 : t.y.element));
  run(all, Values::kRandom);
}
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
    for (size_t at = 0; at < v.size(); ++at) v[at] = std::ldexp(1 + static_cast<double>(at % 5) / 8, i == 0 ? -130 + static_cast<int>(at % 9) : 100);
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
  }
  run(some, Values::kRandom);
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

INSTANTIATE_TEST_SUITE_P(Variants, MatmulVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(MatmulContract, EveryVariantAcceptsSomething) {
  std::vector<Problem> all = small_problems();
  for (const Problem& p : promoted_problems()) all.push_back(p);
  expect_each_accepts(op(), all);
}
// Whoever takes a problem whose sums are to be promoted has sums of f32 or promotes them in time.
TEST(MatmulContract, PromotedSumsArePromoted) {
  for (const Problem& p : promoted_problems()) {
    for (const Variant* v : op().variants) {
      if (!v->accepts(p)) continue;
      const Arithmetic a = v->arithmetic(p);
      EXPECT_TRUE(a.accumulator_bits >= 22 || (a.promote_every > 0 && a.promote_every <= 128)) << v->name;  // 22: as matrix units keep f32
    }
  }
}

// Kernels of whole tiles run gates, with nothing but bias and quantize beside them; nobody else takes a matmul for one of fewer columns.
TEST(MatmulContract, GatesRunWhereHalvesMeet) {
  std::set<std::string> took;
  for (const Problem& p : gated_problems()) {
    for (const Variant* v : op().variants) {
      if (v->accepts(p)) took.insert(v->name);
    }
  }
  EXPECT_EQ(took, (std::set<std::string>{"matmul/sm90_f16", "matmul/sm90_fp8", "matmul/sm90_int8"}));
  const Types& f16 = kTypes[1];
  for (const Variant* v : op().variants) {
    for (const char* program : {"bU", "iI", "bsI"}) EXPECT_FALSE(v->accepts(problem(f16, {64, 64}, 64, program, Element::f16))) << v->name << " " << program;
    EXPECT_FALSE(v->accepts(problem(f16, {64, 64}, 8, "bI", Element::f16))) << v->name << ": rows of y are 8 bytes";
  }
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
    EXPECT_EQ(first->arithmetic(p).computed, int8 ? "int8" : wide(p.in[0].type) || wide(p.in[1].type) ? "fp32" : "bf16")
        << to_string(p.in[0].type) << " x " << to_string(p.in[1].type);
    const Layout stored = first->layouts(p)[1];
    EXPECT_EQ(stored == Layout::kSparse24, is_sparse24(p));
  }
}

TEST(MatmulContract, OnlyTheCpuStoresSparseWeights) {
  Problem p = problem(kTypes[1], {64, 64}, 64, "", Element::f16);
  for (const Variant* v : op().variants) {
    const bool dense = static_cast<bool>(v->accepts(p));
    Problem sparse = p;
    sparse.attrs.set(kSparse24, int64_t{1});
    EXPECT_EQ(static_cast<bool>(v->accepts(sparse)), dense && v->arch == Arch::cpu) << v->name;
    sparse.in[1].constant = false;
    EXPECT_FALSE(v->accepts(sparse)) << v->name;
  }
}

TEST(MatmulRule, ShapesFollowTheOperands) {
  const auto infer = [](const Shape& x, const Shape& w) {
    return infer_types(op(), Problem{.op = "matmul", .in = {dense_operand(x, kF16), dense_operand(w, kF16)}});
  };
  EXPECT_EQ((*infer({2, 197, 768}, {3072, 768}))[0], (Type{{2, 197, 3072}, kF16}));
  EXPECT_EQ((*infer({768}, {10, 768}))[0].shape, Shape({10}));
  EXPECT_EQ((*infer({2, 12, 5, 64}, {2, 12, 7, 64}))[0].shape, Shape({2, 12, 5, 7}));
  EXPECT_FALSE(infer({2, 5, 64}, {3, 7, 64}).ok());
  EXPECT_FALSE(infer({5, 64}, {7, 65}).ok());
  EXPECT_FALSE(infer({5, 0}, {7, 0}).ok());
  EXPECT_FALSE(infer({}, {7, 64}).ok());
  EXPECT_FALSE(infer({7}, {7}).ok());
  EXPECT_FALSE(infer_types(op(), Problem{.op = "matmul", .in = {dense_operand({1, 1}, kF16)}}).ok());
}

TEST(MatmulRule, ProgramsMustFit) {
  Problem p = problem(kTypes[0], {4, 8}, 16, "b", Element::f32);
  p.in[2].shape = {15}, p.in[2].strides = {1};
  EXPECT_FALSE(check_problem(op(), p).ok());
  p = problem(kTypes[0], {4, 8}, 16, "r", Element::f32);
  p.in[2] = dense_operand({3, 16}, kF32);
  EXPECT_FALSE(check_problem(op(), p).ok());
  p.in[2] = dense_operand({2, 16}, kF32);
  EXPECT_TRUE(check_problem(op(), p).ok());
  p.then.steps[0].operand = 7;
  EXPECT_FALSE(check_problem(op(), p).ok());
}

TEST(MatmulRule, AGateTakesTwoHalves) {
  Problem p = problem(kTypes[0], {4, 8}, 16, "bI", Element::f32);
  EXPECT_EQ(p.out[0].shape, Shape({4, 8}));
  EXPECT_EQ(MatmulProblem::of(p).n, 16);
  EXPECT_EQ(MatmulProblem::of(p).cols, 8);
  EXPECT_EQ(op().flops(p), 2.0 * 4 * 16 * 8);
  EXPECT_TRUE(check_problem(op(), p).ok());
  Problem narrow = p;  // a bias of the result's columns comes after the gate only
  narrow.in[2] = dense_operand({8}, kF32, true);
  EXPECT_FALSE(check_problem(op(), narrow).ok());
  std::swap(narrow.then.steps[0], narrow.then.steps[1]);
  EXPECT_TRUE(check_problem(op(), narrow).ok());
  Problem twice = p;
  twice.then.steps.push_back(twice.then.steps[1]);
  EXPECT_FALSE(check_problem(op(), twice).ok());
  Problem odd = p;
  odd.in[1].shape[0] = 15;
  EXPECT_FALSE(infer_types(op(), odd).ok());
  const OpInfo& norm = *find_op("norm");
  Problem elsewhere = make_problem("norm", {dense_operand({4, 8}, kF32)}, {{"eps", 1e-5}, {"kind", std::string("layer")}});
  elsewhere.then.steps = {{.kind = StepKind::gate, .fn = Unary::silu}};
  EXPECT_FALSE(check_problem(norm, elsewhere).ok());
}

TEST(MatmulReading, FoldsRowsWhereTheWeightIsShared) {
  const Problem shared = make_problem("matmul", {gapped({2, 5, 8}, kF16, 4), dense_operand({7, 8}, kF16, true)});
  const MatmulProblem a = MatmulProblem::of(shared);
  EXPECT_EQ(a.batch, 1);
  EXPECT_EQ(a.m, 10);
  EXPECT_EQ(a.n, 7);
  EXPECT_EQ(a.k, 8);
  EXPECT_EQ(a.x_row_stride, 12);
  EXPECT_EQ(a.w_row_stride, 8);
  const Problem pairs = make_problem("matmul", {dense_operand({2, 5, 8}, kF16), dense_operand({2, 7, 8}, kF16)});
  const MatmulProblem b = MatmulProblem::of(pairs);
  EXPECT_EQ(b.batch, 2);
  EXPECT_EQ(b.m, 5);
  EXPECT_EQ(op().flops(pairs), 2.0 * 2 * 5 * 7 * 8);
}

TEST(MatmulReference, SmallNumbersByHand) {
  // x = [1 2 3; 4 5 6], w = [1 0 -1; 2 1 0], bias = [10, -20], then relu, then + residual [1 1] for every row.
  Problem p = problem(kTypes[0], {2, 3}, 2, "buR", Element::f32);
  p.in[3] = dense_operand({1, 2}, kF32);
  ASSERT_TRUE(check_problem(op(), p).ok());
  const std::vector<Dense> in = {
      {{2, 3}, {1, 2, 3, 4, 5, 6}}, {{2, 3}, {1, 0, -1, 2, 1, 0}}, {{2}, {10, -20}}, {{1, 2}, {1, 1}}};
  EXPECT_EQ(compute_reference(op(), p, in)[0].v, (std::vector<double>{9, 1, 9, 1}));
}

TEST(MatmulReference, GatesByHand) {
  // Sums of the gate [3 5; -1 -2] and of what it multiplies [2 4; 7 9], biases [0 -10 1 0]; relu, then a scale of the n columns that are left.
  Problem p = problem(kTypes[0], {2, 1, 2}, 4, "bU", Element::f32);
  p.in.push_back(dense_operand({2}, kF32, true));
  p.then.steps.push_back({.kind = StepKind::scale, .operand = 3});
  ASSERT_TRUE(check_problem(op(), p).ok()) << check_problem(op(), p).message();
  const std::vector<Dense> in = {{{2, 1, 2}, {1, 0, 0, 1}}, {{4, 2}, {3, -1, 5, -2, 2, 7, 4, 9}}, {{4}, {0, -10, 1, 0}}, {{2}, {10, 100}}};
  const Dense y = compute_reference(op(), p, in)[0];
  EXPECT_EQ(y.shape, Shape({2, 1, 2}));
  EXPECT_EQ(y.v, (std::vector<double>{90, 0, 0, 0}));
}

// Numbers that are off by what the arithmetic may leave stay within the derived errors, and those are no more than a few times what happens.
TEST(MatmulErrors, CarryThroughAGate) {
  for (const char* program : {"bI", "bT", "G", "Q"}) {
    const Case c = make_case(problem(kTypes[0], {17, 31}, 50, program, Element::f32), 9);
    Arithmetic coarse{.accumulator_bits = 14};
    const Errors allowed = derive_errors(c, coarse);  // also holds its numbers against the reference's
    ASSERT_EQ(allowed.size(), c.exact[0].v.size());
    const Dense before = compute_reference(op(), before_program(c.problem), c.numbers)[0];
    const Errors e = errors_before_program(op(), c.problem, c.numbers, before, Roundings(coarse));
    double worst = 0;
    for (const double sign : {-1.0, 1.0}) {
      for (const bool both : {false, true}) {
        Dense moved = before;
        for (size_t i = 0; i < e.size(); ++i) moved.v[i] += (i % 50 < 25 || both ? sign : -sign) * e[i];
        apply_program(c.problem, c.numbers, moved);
        for (size_t i = 0; i < allowed.size(); ++i) worst = std::max(worst, std::fabs(moved.v[i] - c.exact[0].v[i]) / allowed[i]);
      }
    }
    EXPECT_LE(worst, 1) << program;
    EXPECT_GE(worst, 0.3) << program;
  }
}

TEST(MatmulReference, ReadsScalesAndPanels) {
  // Codes of 2 and 4 with scales 0.5 (x) and 1, 3 (channels of w): 2 * 0.5 * 4 * 1 = 4 and 12, in any storage order of
  // w.
  const Problem p = problem(kTypes[6], {1, 1}, 2, "", Element::f32);
  const uint8_t two = E4m3::encode(2), four = E4m3::encode(4);
  const float x_scale = 0.5f, w_scales[] = {1, 3};
  for (Layout layout : kLayouts) {
    if (!is_order(layout)) continue;
    Problem here = p;
    here.in[1].layout = layout;
    uint8_t x[] = {two}, w[128] = {};
    for (int64_t row : {0, 1}) w[layout_index(layout, row, 0, 2, 1)] = four;
    float y[2] = {-1, -1};
    const TensorView in[] = {{.desc = &here.in[0], .data = x, .scale = const_cast<float*>(&x_scale)},
                             {.desc = &here.in[1], .data = w, .scale = const_cast<float*>(w_scales)}};
    const TensorView out[] = {{.desc = &here.out[0], .data = y}};
    ASSERT_TRUE(run_reference(op(), here, in, out).ok());
    EXPECT_EQ(y[0], 4);
    EXPECT_EQ(y[1], 12);
  }
}

TEST(MatmulReference, NoiseIsBoundedAndSeeded) {
  const Case c = make_case(problem(kTypes[0], {9, 16}, 31, "", Element::f32), 3);
  const auto noisy = [&](uint64_t seed) {
    HostTensor y{.desc = c.problem.out[0], .data = Buffer(9 * 31 * 4), .scale = {}, .scale2 = {}};
    const TensorView in[] = {c.in[0].view(), c.in[1].view()}, out[] = {y.view()};
    EXPECT_TRUE(run_reference(op(), c.problem, in, out, {.relative = 0.01, .seed = seed}).ok());
    return decode(y.view()).v;
  };
  const auto a = noisy(1), again = noisy(1), b = noisy(2);
  EXPECT_EQ(a, again);
  EXPECT_NE(a, b);
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] / c.exact[0].v[i] - 1));
  EXPECT_LE(worst, 0.01 + 0x1p-24);
  EXPECT_GE(worst, 0.009);  // 279 numbers in [-1, 1]: the largest misses 0.9 with probability 1e-13
}

}  // namespace
}  // namespace tessera
