// SPDX-License-Identifier: Apache-2.0
// What the products on Hopper's wgmma share before anything runs, matmul's and conv2d's: which programs the epilogue
// runs, what the arithmetic is, the shapes of tiles.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "archs/sm90/chip.h"
#include "archs/sm90/fp8.h"
#include "op/variant.h"
#include "ops/product.h"
#include "tiles/sm90/activation_fast.h"
#include "types/layout.h"

namespace tessera {

inline bool is_half(Element e) { return e == Element::f16 || e == Element::bf16; }

// 16 bytes, the unit of TMA, in elements.
inline int64_t copy_unit(Element e) { return 128 / info(e).bits; }

// What a kernel can do beyond the rest of them: sums as the attribute promoted asks for, a gate in its program, f32
// results of 16-bit operands (a head's logits).
struct WgmmaKernel {
  bool promotes = false, gates = false, widens = false;
  bool folds = false;         // both ends of a folded norm (steps/row_moments.h)
  bool heads = false;         // turns heads and keeps columns (steps/rotary.h, op/extra_results.h)
  bool bf16_vectors = false;  // beside 8-bit results, which say nothing of the carrier
  bool tokens = false;        // codes of x have a scale per row, else one static scale
  bool repeats = false;  // a residual of fewer rows, whole tiles of them, for all rows of the result: positions of an
                         // image's patches
};
constexpr int64_t kRepeatedRows = 128;

// Programs of the epilogues (tiles/sm90/gemm_finish.cuh, swapped.cuh).
inline constexpr StepSet kWgmmaSteps = {StepKind::bias, StepKind::act, StepKind::scale, StepKind::residual,
                                        StepKind::quantize};

// What the epilogue needs of its operands and results, the types of x and w aside. `vector`: the element of bias and
// scale; `steps`: what the kernel runs of this problem.
inline Verdict accepts_epilogue(const Problem& problem, const Product& p, Element vector, WgmmaKernel kernel,
                                const StepSet& steps) {
  const int64_t out_unit = copy_unit(p.y.element);
  TS_REQUIRE(p.cols % std::max<int64_t>(out_unit, 8) == 0,
             "rows of y must be multiples of 16 bytes and of eight columns: it has ", p.cols);
  TS_REQUIRE(p.m < (int64_t{1} << 31) && p.n < (int64_t{1} << 31) && p.k < (int64_t{1} << 31), "indices are 32-bit");
  TS_REQUIRE(p.then->within(steps), steps.says_in_order());
  for (const Step& s : p.then->steps) {
    if (names_function(s.kind))
      TS_REQUIRE(is_fast_activation(s.fn), "runs no ", name_of(s.kind), " but GELUs, silu and relu, here ",
                 name_of(s.fn));
    if (operand_of(s.kind) == StepOperand::kVector) {
      const Operand& o = problem.step_operand(s);
      const bool either = kernel.bf16_vectors && info(p.y.element).bits == 8 && o.type == QuantType(Element::bf16);
      TS_REQUIRE((o.type == QuantType(vector) || either) && o.dense(), "reads vectors of ", info(vector).name, ", not ",
                 to_string(o.type));
    }
    if (s.kind == StepKind::residual) {
      const Operand& o = problem.step_operand(s);
      const RowView rows = o.rows();
      TS_REQUIRE(o.type == p.y && is_half(p.y.element), "adds a residual of the result's 16-bit type only");
      TS_REQUIRE(rows.uniform && rows.row_stride % 8 == 0,
                 "adds a residual whose rows follow each other at one distance, a multiple of 16 bytes");
      TS_REQUIRE(rows.rows == p.m || (kernel.repeats && rows.rows % kRepeatedRows == 0),
                 "adds a residual with as many rows as the result",
                 kernel.repeats ? cat(", or again and again one of a multiple of ", kRepeatedRows, " rows") : "");
    }
  }
  return {};
}

// Types of x, w and y. 16-bit operands: the result's type is theirs, or f32. 8-bit codes: x with one static scale or
// one per token, w with one or one per channel, y 16 bits or codes with one static scale again.
inline Verdict accepts_wgmma_types(const Product& p, WgmmaKernel kernel) {
  const Element e = p.x.element;
  if (is_half(e)) {
    TS_REQUIRE(p.x == p.w && !p.x.scaled() && (p.y == p.x || (kernel.widens && p.y == QuantType(Element::f32))),
               "multiplies ", info(e).name, " and writes the type it reads", kernel.widens ? " or f32" : "", ", not ",
               to_string(p.x), " with ", to_string(p.w), " to ", to_string(p.y));
    return {};
  }
  const QuantType tensor(e, {Granularity::kTensor, Element::f32}), channel(e, {Granularity::kChannel, Element::f32});
  if (kernel.tokens) {
    TS_REQUIRE(p.x == kE4m3PerToken, "reads e4m3 with scales per token made while running, not ", to_string(p.x));
    TS_REQUIRE(is_half(p.y.element), "writes f16 or bf16, not ", to_string(p.y));
  } else {
    TS_REQUIRE((e == Element::e4m3 || e == Element::i8) && p.x == tensor,
               "reads f16, bf16, or e4m3 or int8 with one static scale, not ", to_string(p.x));
  }
  TS_REQUIRE(p.w == tensor || p.w == channel, "reads weights of x's element scaled per tensor or channel, not ",
             to_string(p.w));
  TS_REQUIRE((is_half(p.y.element) && !p.y.scaled()) || p.y == tensor,
             "writes f16, bf16, or x's element with one static scale, not ", to_string(p.y));
  TS_REQUIRE(e != Element::i8 || p.k <= 1 << 16, "sums at most 65536 products in int32, here ", p.k);
  return {};
}

// Of bias and scale: as wide as 16-bit results; beside codes bf16 or f16.
inline Element vector_of_wgmma(const Product& p) {
  if (is_half(p.x.element)) return p.y.element;
  return p.y.element == Element::bf16 ? Element::bf16 : Element::f16;
}

// Both mainloops read weights with their rows in the order that gives a thread neighbouring results; missing rows of
// the last 32 are stored as zeros.
inline Layout w_layout_for_wgmma(const Problem& problem) {
  return problem.then.gated() ? Layout::kHalves32 : Layout::kPairs32;
}
inline std::vector<OperandLayout> layouts_for_wgmma(const Problem& problem) {
  return {Layout::kRows, w_layout_for_wgmma(problem)};
}
inline int64_t stored_w_rows(const Problem& problem, const Product& p) {
  return stored_rows32(w_layout_for_wgmma(problem), p.n);
}

// What wgmma makes of two operands of an element.
inline Arithmetic wgmma_arithmetic(Element e, double activation_error) {
  Arithmetic a{.activation_error = activation_error};
  if (e == Element::e4m3) {
    a.computed = Element::e4m3, a.instruction = "wgmma e4m3 (QGMMA), fast accumulation",
    a.accumulator_bits = sm90::kFp8AccumulatorBits;
  } else if (e == Element::i8) {
    a.computed = Element::i8, a.instruction = "wgmma int8 (IGMMA)", a.accumulator_bits = 32;
  } else {
    a.computed = e, a.instruction = cat("wgmma ", arithmetic_name(e), " (HGMMA)"), a.accumulator_bits = 22;
  }
  return a;
}

// Of the activation or the gate in a program.
inline double activation_error_of(const Product& p, bool in_half) {
  for (const Step& s : p.then->steps) {
    if (names_function(s.kind)) return in_half ? fast_activation_error_in_half(s.fn) : fast_activation_error(s.fn);
  }
  return 0;
}

inline Arithmetic gemm_arithmetic(const Product& p) {
  const bool in_half = !p.then->gated() && p.y.element == Element::e4m3;
  return wgmma_arithmetic(p.x.element, activation_error_of(p, in_half));
}

// Beside a smooth activation a branch for relu costs registers that tiles of 192 columns do not have.
inline bool runs_relu(const Program& then) {
  return std::any_of(then.steps.begin(), then.steps.end(),
                     [](const Step& s) { return names_function(s.kind) && s.fn == Unary::relu; });
}

// Columns that the SMs of the chip walk one after the other with tiles of 128 x `cols`, for so many products: what idle
// SMs cost.
inline double columns_in_turn(const Product& p, int64_t cols, int64_t products = 1) {
  const int64_t tiles = products * divide_up(p.m, 128) * divide_up(p.n, cols);
  return static_cast<double>(divide_up(tiles, sm90::kSms) * cols);
}

}  // namespace tessera
