// SPDX-License-Identifier: Apache-2.0
// What the matmuls on Hopper's wgmma share before anything runs: which operands TMA can load, which
// programs the epilogue runs, what the arithmetic is.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "archs/sm90/chip.h"
#include "archs/sm90/fp8.h"
#include "op/extra_results.h"
#include "ops/matmul/emulate.h"
#include "ops/matmul/matmul.h"
#include "tiles/sm90/activation_fast.h"
#include "tiles/sm90/gemm_tiles.h"

namespace tessera {

inline bool is_half(Element e) { return e == Element::f16 || e == Element::bf16; }

// 16 bytes, the unit of TMA, in elements.
inline int64_t copy_unit(Element e) { return 128 / info(e).bits; }

// What a kernel can do beyond the rest of them: sums as the attribute promoted asks for, a gate in its program, f32
// results of 16-bit operands (a head's logits).
struct WgmmaKernel {
  bool promotes = false, gates = false, widens = false;
  bool folds = false;    // both ends of a folded norm (steps/row_moments.h)
  bool repeats = false;  // a residual of fewer rows, whole tiles of them, for all rows of the result: positions of an
                         // image's patches
};
constexpr int64_t kRepeatedRows = 128;

// Programs of the epilogues (tiles/sm90/gemm_finish.cuh, swapped.cuh): plain, of a kernel that folds, gated.
inline constexpr StepSet kWgmmaSteps = {StepKind::bias, StepKind::act, StepKind::scale, StepKind::residual,
                                        StepKind::quantize};
inline constexpr StepSet kFoldingWgmmaSteps = {StepKind::normalise, StepKind::bias,     StepKind::act,
                                               StepKind::scale,     StepKind::residual, StepKind::quantize};
inline constexpr StepSet kGatedWgmmaSteps = {StepKind::bias, StepKind::gate, StepKind::quantize};
inline constexpr StepSet kFoldingGatedWgmmaSteps = {StepKind::normalise, StepKind::bias, StepKind::gate,
                                                    StepKind::quantize};

// Everything but the types of x, w and y. `vector`: the element of bias and scale.
inline Verdict accepts_for_wgmma(const Problem& problem, const MatmulProblem& p, Element vector, WgmmaKernel kernel) {
  TS_REQUIRE(!is_sparse24(problem), kNotSparse);
  TS_REQUIRE(kernel.promotes || !is_promoted(problem), kFastSums);
  TS_REQUIRE(p.batch == 1 && p.constant_w, "multiplies by one constant weight");
  const int64_t unit = copy_unit(p.x.element), out_unit = copy_unit(p.y.element);
  TS_REQUIRE(p.k % unit == 0 && p.x_row_stride % unit == 0, "rows of x must be multiples of 16 bytes: k is ", p.k);
  TS_REQUIRE(p.cols % std::max<int64_t>(out_unit, 8) == 0,
             "rows of y must be multiples of 16 bytes and of eight columns: it has ", p.cols);
  TS_REQUIRE(p.m < (int64_t{1} << 31) && p.n < (int64_t{1} << 31) && p.k < (int64_t{1} << 31), "indices are 32-bit");
  TS_REQUIRE(kernel.folds || !has_folded_norm(problem), kNoFoldedNorm);
  if (problem.out.size() > 1) TS_REQUIRE(is_half(p.y.element), "writes codes and moments beside 16-bit results only");
  const bool gated = p.then->gated();
  TS_REQUIRE(kernel.gates || !gated, "runs no gate");
  TS_REQUIRE(!gated || problem.out.size() == 1, "writes no codes and moments beside what a gate leaves");
  const StepSet& steps = gated          ? kernel.folds ? kFoldingGatedWgmmaSteps : kGatedWgmmaSteps
                         : kernel.folds ? kFoldingWgmmaSteps
                                        : kWgmmaSteps;
  TS_REQUIRE(p.then->within(steps), steps.says_in_order());
  for (const Step& s : p.then->steps) {
    if (names_function(s.kind))
      TS_REQUIRE(is_fast_activation(s.fn), "runs no ", name_of(s.kind), " but GELUs and silu, here ", name_of(s.fn));
    if (operand_of(s.kind) == StepOperand::kVector) {
      const Operand& o = problem.step_operand(s);
      TS_REQUIRE(o.type == QuantType(vector) && o.dense(), "reads vectors of ", info(vector).name, ", not ",
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

// Types too. 16-bit operands: the result's type is theirs, or f32. 8-bit codes: x with one static scale, w with one or
// one per channel, y 16 bits or such codes again.
inline Verdict accepts_on_wgmma(const Problem& problem, const MatmulProblem& p, WgmmaKernel kernel = {}) {
  const Element e = p.x.element;
  if (is_half(e)) {
    TS_REQUIRE(p.x == p.w && !p.x.scaled() && (p.y == p.x || (kernel.widens && p.y == QuantType(Element::f32))),
               "multiplies ", info(e).name, " and writes the type it reads", kernel.widens ? " or f32" : "", ", not ",
               to_string(p.x), " with ", to_string(p.w), " to ", to_string(p.y));
    return accepts_for_wgmma(problem, p, p.y.element, kernel);  // vectors as wide as the results
  }
  const QuantType tensor(e, {Granularity::kTensor, Element::f32}), channel(e, {Granularity::kChannel, Element::f32});
  TS_REQUIRE((e == Element::e4m3 || e == Element::i8) && p.x == tensor,
             "reads f16, bf16, or e4m3 or int8 with one static scale, not ", to_string(p.x));
  TS_REQUIRE(p.w == tensor || p.w == channel, "reads weights of x's element scaled per tensor or channel, not ",
             to_string(p.w));
  TS_REQUIRE((is_half(p.y.element) && !p.y.scaled()) || p.y == tensor,
             "writes f16, bf16, or x's element with one static scale, not ", to_string(p.y));
  TS_REQUIRE(e != Element::i8 || p.k <= 1 << 16, "sums at most 65536 products in int32, here ", p.k);
  return accepts_for_wgmma(problem, p, p.y.element == Element::bf16 ? Element::bf16 : Element::f16, kernel);
}

// Both mainloops read weights with their rows in the order that gives a thread neighbouring results; missing rows of
// the last 32 are stored as zeros.
inline Layout w_layout_for_wgmma(const Problem& problem) {
  return problem.then.gated() ? Layout::kHalves32 : Layout::kPairs32;
}
inline std::vector<OperandLayout> layouts_for_wgmma(const Problem& problem) {
  return {Layout::kRows, w_layout_for_wgmma(problem)};
}
inline int64_t stored_w_rows(const Problem& problem) {
  return stored_rows32(w_layout_for_wgmma(problem), MatmulProblem::of(problem).n);
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

// The normal mainloop leaves most of the chip idle where rows are few: it does not split K.
inline Verdict worthwhile_for_gemm(const Problem& problem) {
  const int64_t m = MatmulProblem::of(problem).m;
  TS_REQUIRE(m > 512, "slow below 512 rows, here ", m);
  return {};
}

inline Arithmetic gemm_arithmetic(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  const bool act = p.then->find(StepKind::act) != nullptr;
  const double error = act && p.y.element == Element::e4m3 ? kActivationErrorInHalf
                       : act || p.then->gated()            ? kActivationError
                                                           : 0;
  return wgmma_arithmetic(p.x.element, error);
}

// Tiles of 128 x 192 whose blocks keep their rows of w (tiles/sm90/gemm.cuh, kResident): codes to such codes, k of a
// few blocks of 128 bytes, a block for each column of tiles.
inline constexpr const char* kResidentConfig = "128x192 w";
inline bool may_keep_w(const MatmulProblem& p) {
  return info(p.x.element).bits == 8 && p.y.element == p.x.element && !p.then->gated() &&
         p.k <= sm90::kResidentBlocks * 128 && p.n <= sm90::kSms * 192;
}

// Tile shapes of the normal mainloop for a problem, best guess first: the one whose last round of tiles leaves fewer of
// the chip's SMs idle. 192 columns read less from shared memory for each product: 128x128 takes 1.1 times as
// long for the same area. Products of 8 bits are so short beside an activation that the registers it has in 128x128
// count for more (ViT-B b64, fc1: 50.3 against 51.1 us; in 16 bits 95.6 against 90.7). Blocks that keep w take 0.9
// times as long, activations aside, once they have several tiles each and their grid, so many blocks for every column,
// leaves no more SMs idle.
inline std::vector<std::string> gemm_configs(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  const auto cost = [&](int64_t cols) {
    const int64_t tiles = ((p.m + 127) / 128) * ((p.n + cols - 1) / cols);
    return static_cast<double>((tiles + sm90::kSms - 1) / sm90::kSms * cols);
  };
  const bool act = p.then->find(StepKind::act) != nullptr;
  const bool more = p.then->find(StepKind::scale) != nullptr || p.then->find(StepKind::residual) != nullptr;
  if ((act && more) || (p.then->gated() && is_half(p.y.element))) return {"128x128"};  // GemmShape::kRunsAny
  std::vector<std::string> names = {"128x192", "128x128"};
  if (cost(192) > (act && !is_half(p.x.element) ? 0.95 : 1.1) * cost(128)) std::swap(names[0], names[1]);
  if (may_keep_w(p)) {
    const int64_t rows = (p.m + 127) / 128, cols = (p.n + 191) / 192;
    bool first = !act && rows * cols >= 4 * sm90::kSms;
    if (first) {
      const int64_t blocks =
          sm90::blocks_per_column(static_cast<uint32_t>(rows), static_cast<uint32_t>(cols), sm90::kSms);
      first = 0.9 * static_cast<double>((rows + blocks - 1) / blocks * 192) <= std::min(cost(192), 1.1 * cost(128));
    }
    names.insert(first ? names.begin() : names.end(), kResidentConfig);
  }
  return names;
}

// The normal mainloop walks k from 0 on, in one accumulator.
inline Emulation emulate_gemm(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  return emulate_wgmma(problem, in, out, {wgmma_core(problem.in[0].type.element)}, Mainloop::kNormal);
}

// A variant on the normal mainloop. `bind` is null where only contracts are compiled.
inline Variant gemm_variant(const char* name, Verdict (*accepts)(const Problem&),
                            Result<std::unique_ptr<Kernel>> (*bind)(const Problem&), SassPromise sass) {
  return {.name = name,
          .arch = Arch::sm90,
          .accepts = accepts,
          .arithmetic = gemm_arithmetic,
          .worthwhile = worthwhile_for_gemm,
          .configs = gemm_configs,
          .layouts = layouts_for_wgmma,
          .emulate = emulate_gemm,
          .operand_align = 16,
          .sass = std::move(sass),
          .bind = bind};
}

}  // namespace tessera
