// SPDX-License-Identifier: Apache-2.0
// Programs whose results are codes of every type of activation, over pieces of columns: after matmul, whose pieces are
// cut differently by every size and number of threads.
#include "op/cpu_program.h"

#include "base/parallel.h"
#include "ops/ops.h"
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
