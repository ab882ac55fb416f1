// SPDX-License-Identifier: Apache-2.0
// What the matmuls on Hopper's wgmma share before anything runs: which operands the copy engine can move, which programs the epilogue runs, what the arithmetic is.
#pragma once

#include <string>
#include <vector>

#include "archs/sm90/fp8.h"
#include "ops/matmul/matmul.h"
#include "tiles/activation_fast.h"

namespace tessera {

inline bool is_half(Element e) { return e == Element::f16 || e == Element::bf16; }

// 16 bytes, what the copy engine moves, in elements.
inline int64_t copy_unit(Element e) { return 128 / info(e).bits; }

// Everything but the types of x, w and y. `vector`: the element of bias and scale.
inline Verdict accepts_for_wgmma(const Problem& problem, const MatmulProblem& p, Element vector) {
  TS_REQUIRE(!is_sparse24(problem), kNotSparse);
  TS_REQUIRE(p.batch == 1 && p.constant_w, "multiplies by one constant weight");
  const int64_t unit = copy_unit(p.x.element), out_unit = copy_unit(p.y.element);
  TS_REQUIRE(p.k % unit == 0 && p.x_row_stride % unit == 0, "rows of x must be multiples of 16 bytes: k is ", p.k);
  TS_REQUIRE(p.n % out_unit == 0, "rows of y must be multiples of 16 bytes: n is ", p.n);
  TS_REQUIRE(p.m < (int64_t{1} << 31) && p.n < (int64_t{1} << 31) && p.k < (int64_t{1} << 31), "indices are 32-bit");
  TS_REQUIRE(p.then->within({StepKind::bias, StepKind::act, StepKind::scale, StepKind::residual, StepKind::quantize}),
             "runs bias, act, scale, residual, quantize in this order only");
  for (const Step& s : p.then->steps) {
    if (s.kind == StepKind::act) TS_REQUIRE(is_fast_activation(s.fn), "runs no act but GELUs and silu, here ", name_of(s.fn));
    if (operand_of(s.kind) == StepOperand::kVector) {
      const Operand& o = problem.step_operand(s);
      TS_REQUIRE(o.type == QuantType(vector) && o.dense(), "reads vectors of ", info(vector).name, ", not ", to_string(o.type));
    }
    if (s.kind == StepKind::residual) {
      const Operand& o = problem.step_operand(s);
      const RowView rows = o.rows();
      TS_REQUIRE(o.type == p.y && is_half(p.y.element), "adds a residual of the result's 16-bit type only");
      TS_REQUIRE(rows.uniform && rows.rows == p.m && rows.row_stride % 8 == 0, "adds a residual with as many rows as the result");
    }
  }
  return {};
}

// Relative to the activation's argument (tiles/activation_fast.h).
inline double activation_error(const MatmulProblem& p) {
  const Step* act = p.then->find(StepKind::act);
  if (act == nullptr || !is_fast_activation(act->fn)) return 0;
  return act->fn == Unary::gelu_erf && p.y.element == Element::e4m3 ? kActivationErrorInHalf : kActivationError;
}

// Tile shapes of the normal mainloop for a problem, best guess first: the one whose last round of tiles leaves fewer of the H200's 132 processors idle. 192 columns read
// less from shared memory for each product: 128x128 takes 1.1 times as long for the same area. In 16 bits an activation is so long beside the products that the registers
// it has in 128x128 count for more (ViT-B b64, fc1: 106 against 112 us).
inline std::vector<std::string> gemm_configs(const MatmulProblem& p) {
  const auto cost = [&](int64_t cols) {
    const int64_t tiles = ((p.m + 127) / 128) * ((p.n + cols - 1) / cols);
    return static_cast<double>((tiles + 131) / 132 * cols);
  };
  const bool long_program = is_half(p.x.element) && p.then->find(StepKind::act) != nullptr;
  if (cost(192) <= (long_program ? 0.95 : 1.1) * cost(128)) return {"128x192", "128x128"};
  return {"128x128", "128x192"};
}

}  // namespace tessera
