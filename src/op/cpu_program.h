// SPDX-License-Identifier: Apache-2.0
// The epilogue program of a CPU kernel: run on finished f32 rows (or pieces of rows) and stored in the result's type.
// Takes steps in any order; vectors and matrices in f32, f16 or bf16; results in plain floats, with one static scale
// for the tensor, or with scales that are made here: per block where pieces begin at blocks, per token where they are
// rows.
#pragma once

#include <array>
#include <span>

#include "op/problem.h"
#include "op/variant.h"
#include "tiles/cpu/rows.h"

namespace tessera {

class CpuProgram {
 public:
  static constexpr size_t kMaxSteps = 8;
  // In any order: whatever works on numbers one by one, as pieces of rows have no others; and codes of the result.
  static constexpr StepSet kSteps = {StepKind::bias, StepKind::act, StepKind::scale, StepKind::residual,
                                     StepKind::quantize};

  // What a kernel hands to `finish`: columns that begin at a multiple of kPieceCols, or whole rows, of which each
  // thread takes an even number (4-bit rows that end inside a byte share it with the next).
  enum class Pieces : uint8_t { kColumns, kRows };
  static constexpr int64_t kPieceCols = 32;

  // Also checks the type of the result.
  static Verdict accepts(const Problem& problem, Pieces pieces = Pieces::kColumns);
  // Contract: accepted; the problem outlives this.
  explicit CpuProgram(const Problem& problem) : problem_(problem) {}

  // Floats of scratch that `on` wants for pieces of n columns.
  int64_t scratch_floats(int64_t n) const;

  // The program over columns [first, first + n) of every row.
  class Columns {
   public:
    // Runs the steps on v[0, n), in place, and stores the piece of result row `row`.
    void finish(int64_t row, float* v) const;

   private:
    friend class CpuProgram;
    struct Matrix {
      int64_t rows, row_stride;
    };
    std::array<RowStep, kMaxSteps> steps_;
    std::array<Matrix, kMaxSteps> matrices_;
    size_t count_ = 0;
    int64_t first_ = 0, n_ = 0, cols_ = 0;
    QuantType type_;
    TensorView y_;
    bool one_factor_ = true;  // no scale, or a static one whose quotient is a product
    float factor_ = 1;        // 1 / scale of the result
  };
  // Contract: `first` is a multiple of kPieceCols.
  Columns on(std::span<const TensorView> in, const TensorView& out, int64_t first, int64_t n, float* scratch) const;

 private:
  const Problem& problem_;
};

// Results that a program can store in these pieces; the refusal says why not.
Verdict accepts_result(const Operand& y, CpuProgram::Pieces pieces);
// Without scales, or with one static f32 scale for the tensor.
bool has_one_scale(const QuantType& type);
// "f32, f16, bf16 or e4m3 with at most one static f32 scale": the operands that CPU kernels decode while packing.
bool is_decodable(const QuantType& type);

}  // namespace tessera
