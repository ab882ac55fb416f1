// SPDX-License-Identifier: Apache-2.0
// Programs whose results are codes of every type of activation, over pieces of columns: after matmul, whose pieces are
// cut differently by every size and number of threads.
#include "op/cpu_program.h"

#include <cmath>

#include "base/parallel.h"
#include "ops/ops.h"
#include "steps/row_moments.h"
#include "steps/step.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

// y = then(x w), x [m, k], w [n, k]; the program ends with quantize.
Problem linear(int64_t m, int64_t n, int64_t k, const char* y) {
  const std::vector<Operand> in = {dense_operand({m, k}, Element::f16), dense_operand({n, k}, Element::f16, true),
                                   dense_operand({n}, Element::f16, true), dense_operand({m, n}, Element::f16)};
  const Program then{.steps = {{.kind = StepKind::bias, .operand = 2},
                               {.kind = StepKind::act, .fn = Unary::gelu_erf},
                               {.kind = StepKind::residual, .operand = 3},
                               {.kind = StepKind::quantize}}};
  return make_problem("matmul", in, {}, then, *parse_quant_type(y));
}

TEST(CpuProgram, MakesCodesByPiecesOfColumns) {
  const Variant& cpu = *find_variant("matmul/cpu");
  uint64_t seed = 1;
  for (const char* y : {"i8:tensor(f32)", "e2m1:tensor(f32)", "e4m3:block32(e8m0)!", "e4m3:block32(e8m0,floor)!",
                        "e2m1:block16(e4m3):tensor(f32)!", "i8:block8(f32)!"}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1},
                               {5, 15},
                               {3, 17},
                               {7, 33},
                               {2, 64},
                               {40, 100},
                               {3, 197},
                               {2, 198},
                               {5, 777},
                               {3, 800},
                               {230, 800}}) {
      for (int used : {1, 3}) {
        set_threads(used);
        for (const Values values : {Values::kRandom, Values::kZeros, Values::kExtremes}) {
          const Problem p = linear(m, n, 24, y);
          const bool whole_bytes = info(p.out[0].type.element).bits == 8 || n % 2 == 0;
          EXPECT_EQ(check_variant(cpu, p, seed++, values), whole_bytes) << y << ", " << n << " columns";
        }
      }
    }
  }
  set_threads(0);
}

// A step alone between matmul and result, with the operand that it wants.
Problem with_step(StepKind kind, int64_t m, int64_t n) {
  std::vector<Operand> in = {dense_operand({m, 24}, Element::f16), dense_operand({n, 24}, Element::f16, true)};
  Step step{.kind = kind, .numbers = info(kind).example};
  if (names_function(kind)) step.fn = Unary::gelu_tanh;
  const StepOperand wanted = operand_of(kind);
  if (wanted != StepOperand::kNone) step.operand = 2;
  if (wanted == StepOperand::kVector) in.push_back(dense_operand({n}, Element::f16, true));
  if (wanted == StepOperand::kMatrix) in.push_back(dense_operand({m, n}, Element::f16));
  if (wanted == StepOperand::kAngles) in.push_back(dense_operand({m, 2}, Element::f16));
  if (wanted == StepOperand::kMoments) in.push_back(dense_operand({m, moment_groups(24), 2}, Element::f32));
  return make_problem("matmul", in, {}, {.steps = {step}}, QuantType(Element::f32));
}

// Every step of the list: those of the set run and are right, the others are refused with the set's sentence.
TEST(CpuProgram, RunsTheStepsOfItsSet) {
  const Variant& cpu = *find_variant("matmul/cpu");
  for (size_t k = 0; k < kStepKinds; ++k) {
    const auto kind = static_cast<StepKind>(k);
    if (info(kind).rounds) continue;  // codes: above
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 2}, {5, 40}, {3, 298}, {2, 800}}) {
      const bool ran = check_variant(cpu, with_step(kind, m, n), 1 + k, Values::kRandom);
      EXPECT_EQ(ran, CpuProgram::kSteps.contains(kind)) << name_of(kind);
      EXPECT_TRUE(!ran || info(kind).run != nullptr) << name_of(kind);
    }
    if (kind == StepKind::gate) {
      EXPECT_EQ(CpuProgram::accepts(with_step(kind, 3, 40)).refusal, CpuProgram::kSteps.says_in_any_order());
    }
  }
}

// Steps that have a vector form compute what their functor computes.
TEST(CpuProgram, VectorFormsAreTheFunctors) {
  for (const StepKind kind : CpuProgram::kSteps) {
    if (info(kind).run == nullptr || names_function(kind)) continue;  // functions: tiles/cpu/math_test.cc
    std::vector<float> v(301), operand(v.size());
    for (size_t i = 0; i < v.size(); ++i) {
      v[i] = std::sin(static_cast<float>(i)) * 3;
      operand[i] = std::cos(static_cast<float>(i)) + 0.1f;
    }
    std::vector<float> want = v;
    const Step step{.kind = kind, .numbers = info(kind).example};
    info(kind).run(args_of(step), operand.data(), want.data(), static_cast<int64_t>(want.size()));
    RowStep row{.kind = kind, .args = args_of(step)};
    if (operand_of(kind) == StepOperand::kVector) row.vector = operand.data();
    if (operand_of(kind) == StepOperand::kMatrix) row.matrix = operand.data();
    run_steps({&row, 1}, v.data(), static_cast<int64_t>(v.size()));
    EXPECT_EQ(v, want) << name_of(kind);
  }
}

TEST(CpuProgramDeathTest, AStepWithoutAFunctorIsNotPassedOver) {
  std::vector<float> v(5, 1.0f);
  const RowStep codes{.kind = StepKind::quantize, .args = {}};
  run_steps({&codes, 1}, v.data(), 5);
  EXPECT_EQ(v, std::vector<float>(5, 1.0f)) << "encode_row rounds them";
  for (const StepKind kind : {StepKind::gate, StepKind::normalise}) {
    ASSERT_EQ(info(kind).run, nullptr);
    const RowStep row{.kind = kind, .args = {}};
    EXPECT_DEATH(run_steps({&row, 1}, v.data(), 5), "does not work on numbers one by one");
  }
}

TEST(CpuProgram, SaysWhichScalesPiecesCannotMake) {
  const auto refusal = [](const char* y, CpuProgram::Pieces pieces = CpuProgram::Pieces::kColumns) {
    return accepts_result(dense_operand({3, 64}, *parse_quant_type(y)), pieces).refusal;
  };
  EXPECT_NE(refusal("e4m3:token(f32)!").find("covers a whole one"), std::string::npos);
  EXPECT_EQ(refusal("e4m3:token(f32)!", CpuProgram::Pieces::kRows), "");
  EXPECT_NE(refusal("e4m3:block48(e8m0)!").find("inside blocks"), std::string::npos);
  EXPECT_EQ(refusal("e4m3:block48(e8m0)!", CpuProgram::Pieces::kRows), "");
  EXPECT_NE(refusal("e4m3:tensor(f32)!", CpuProgram::Pieces::kRows), "");
  EXPECT_NE(refusal("e4m3:block32(e8m0)"), "");  // who would have made them
  EXPECT_NE(refusal("i32"), "");
  EXPECT_NE(refusal("e2m1:block16(e4m3):tensor(f32):as(e4m3)!"), "");
}

}  // namespace
}  // namespace tessera
