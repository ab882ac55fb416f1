// SPDX-License-Identifier: Apache-2.0
// What a matmul is, before any variant: its rule, its reading as rows and columns, its reference and the errors it
// allows.
#include <algorithm>
#include <cmath>

#include "op/reference.h"
#include "ops/matmul/test_problems.h"
#include "ops/ops.h"
#include "types/e4m3.h"

namespace tessera {
namespace {

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

// Codes times a vector beside the result, of its type too; the moments are of the result itself.
TEST(MatmulRule, CodesMayBeTimesAGain) {
  Problem p = problem(kTypes[3], {4, 8}, 16, "rCm", Element::bf16);
  EXPECT_TRUE(check_problem(op(), p).ok());
  p.out[1].type = kBf16;
  EXPECT_TRUE(check_problem(op(), p).ok());
  p.out[1].type = kF16;
  EXPECT_FALSE(check_problem(op(), p).ok());
  p.out[1].type = kE4m3PerTensor;
  const auto refused = [&](const Operand& gain, int64_t at, bool codes = true) {
    Problem q = p;
    q.in[3] = gain;
    q.attrs.set(kCodesGain, at);
    if (!codes) q.attrs.erase(kCodesResult), q.out.erase(q.out.begin() + 1);
    return !check_problem(op(), q).ok();
  };
  EXPECT_FALSE(refused(dense_operand({1, 16}, kF32), 3));
  EXPECT_TRUE(refused(dense_operand({15}, kF32), 3));
  EXPECT_TRUE(refused(dense_operand({16}, kE4m3PerTensor), 3));
  EXPECT_TRUE(refused(dense_operand({16}, Element::i32), 3));
  EXPECT_TRUE(refused(gapped({16, 1}, kF32, 1), 3));
  EXPECT_TRUE(refused(dense_operand({16}, kF32), 1)) << "the weight is no gain";
  EXPECT_TRUE(refused(dense_operand({16}, kF32), 4));
  EXPECT_TRUE(refused(dense_operand({16}, kF32), 3, /*codes=*/false));
}

TEST(MatmulReference, CodesAreTimesTheirGain) {
  const Problem p = problem(kTypes[0], {3, 8}, 80, "rCm", Element::f32);
  const Case c = make_case(p, 3);
  const std::vector<Dense>& out = c.exact;
  Dense moments{out[2].shape, std::vector<double>(out[2].v.size())};
  for (size_t r = 0; r < 3; ++r) {
    take_moments(out[0].v.data() + r * 80, 80, moments.v.data() + r * 4);
    for (size_t n = 0; n < 80; ++n) EXPECT_EQ(out[1].v[r * 80 + n], out[0].v[r * 80 + n] * c.numbers[3].v[n]);
  }
  EXPECT_EQ(out[2].v, moments.v);
  // Errors grow with the gain, by two roundings.
  const std::vector<double> e = errors_made_of(p, 1, c.numbers, out[0], std::vector<double>(240, 0.5));
  for (size_t i = 0; i < e.size(); ++i) {
    const double g = std::fabs(c.numbers[3].v[i % 80]);
    EXPECT_DOUBLE_EQ(e[i], 0.5 * g + 2 * 0x1p-24 * g * std::fabs(out[0].v[i]));
  }
  EXPECT_EQ(errors_made_of(p, 2, c.numbers, out[0], {0.5}), std::vector<double>{0.5});
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
  Problem elsewhere =
      make_problem("norm", {dense_operand({4, 8}, kF32)}, {{"eps", 1e-5}, {"kind", std::string("layer")}});
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
  // Sums of the gate [3 5; -1 -2] and of what it multiplies [2 4; 7 9], biases [0 -10 1 0]; relu, then a scale of the n
  // columns that are left.
  Problem p = problem(kTypes[0], {2, 1, 2}, 4, "bU", Element::f32);
  p.in.push_back(dense_operand({2}, kF32, true));
  p.then.steps.push_back({.kind = StepKind::scale, .operand = 3});
  ASSERT_TRUE(check_problem(op(), p).ok()) << check_problem(op(), p).message();
  const std::vector<Dense> in = {
      {{2, 1, 2}, {1, 0, 0, 1}}, {{4, 2}, {3, -1, 5, -2, 2, 7, 4, 9}}, {{4}, {0, -10, 1, 0}}, {{2}, {10, 100}}};
  const Dense y = compute_reference(op(), p, in)[0];
  EXPECT_EQ(y.shape, Shape({2, 1, 2}));
  EXPECT_EQ(y.v, (std::vector<double>{90, 0, 0, 0}));
}

// What the arithmetic may do to each result before it is rounded, program included (op/errors.h).
Errors derive_errors(const Case& c, const Arithmetic& arithmetic) {
  const OpInfo& op = *find_op(c.problem.op);
  Dense v = c.exact[0];
  if (!c.problem.then.empty()) v = compute_reference(op, before_program(c.problem), c.numbers)[0];
  Errors e = errors_before_program(op, c.problem, c.numbers, v, Roundings(arithmetic));
  e = errors_after_program(c.problem, c.numbers, v.v, std::move(e), arithmetic.activation_error);
  for (size_t i = 0; i < v.v.size(); ++i) {
    const double want = c.exact[0].v[i];
    if (std::fabs(v.v[i] - want) > 1e-12 * (1 + std::fabs(want))) {
      ADD_FAILURE() << "the reference runs the program to " << want << ", the derivation of errors to " << v.v[i]
                    << " at " << i;
      break;
    }
  }
  return e;
}

// Numbers that are off by what the arithmetic may leave stay within the derived errors, and those are no more than a
// few times what happens.
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
        for (size_t i = 0; i < allowed.size(); ++i)
          worst = std::max(worst, std::fabs(moved.v[i] - c.exact[0].v[i]) / allowed[i]);
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
