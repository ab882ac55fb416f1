// SPDX-License-Identifier: Apache-2.0
#include "op/cpu_program.h"

#include "op/extra_results.h"
#include "tiles/cpu/quantize.h"
#include "types/quantize_array.h"

namespace tessera {
bool has_one_scale(const QuantType& type) {
  if (type.dynamic || type.scale2.granularity != Granularity::kNone) return false;
  return !type.scaled() || (type.scale.granularity == Granularity::kTensor && type.scale.element == Element::f32);
}

bool is_decodable(const QuantType& type) { return is_float_code(type.element) && has_one_scale(type); }

Verdict accepts_result(const Operand& y, CpuProgram::Pieces pieces) {
  const QuantType& type = y.type;
  TS_REQUIRE(y.dense() && y.layout == Layout::kRows, "writes dense rows");
  if (is_decodable(type)) return {};
  TS_REQUIRE(type.scaled(), "writes f32, f16, bf16 or codes with scales, not ", to_string(type));
  if (const Status known = check_quantizable(type); !known.ok()) return {known.message()};
  TS_REQUIRE(!type.product, "writes codes that are rounded once, not ", to_string(type));
  TS_REQUIRE(type.dynamic || has_one_scale(type),
             "writes codes under one static scale or under scales that it makes, not ", to_string(type));
  const Granularity made = type.dynamic ? type.scale.granularity : Granularity::kNone;
  TS_REQUIRE(made != Granularity::kTensor, "works by rows, and the scale of ", to_string(type), " covers all of them");
  if (pieces == CpuProgram::Pieces::kRows) return {};
  TS_REQUIRE(made == Granularity::kNone || made == Granularity::kBlock, "works by pieces of rows, and a scale of ",
             to_string(type), " covers a whole one");
  TS_REQUIRE(made == Granularity::kNone || CpuProgram::kPieceCols % type.scale.block == 0, "cuts rows at multiples of ",
             CpuProgram::kPieceCols, ", inside blocks of ", to_string(type));
  TS_REQUIRE(info(type.element).bits >= 8 || cols_of(y.shape) % 2 == 0, "writes pieces of whole bytes, not rows of ",
             cols_of(y.shape), " codes of ", info(type.element).name);
  return {};
}

Verdict CpuProgram::accepts(const Problem& p, Pieces pieces) {
  if (Verdict v = accepts_result(p.out[0], pieces); !v) return v;
  TS_REQUIRE(p.then.steps.size() <= kMaxSteps, "runs at most ", kMaxSteps, " steps after it");
  TS_REQUIRE(!has_folded_norm(p), kNoFoldedNorm);
  TS_REQUIRE(!keeps_columns(p), kNoKeptColumns);
  TS_REQUIRE(p.then.among(kSteps), kSteps.says_in_any_order());
  for (const Step& s : p.then.steps) {
    const StepOperand wanted = operand_of(s.kind);
    if (wanted == StepOperand::kNone) continue;
    const Operand& o = p.step_operand(s);
    TS_REQUIRE(is_float_code(o.type.element) && !o.type.scaled(), "step ", name_of(s.kind),
               " reads f32, f16 or bf16, not ", to_string(o.type));
    TS_REQUIRE(o.layout == Layout::kRows && o.rows().uniform, "step ", name_of(s.kind), " reads uniform rows");
  }
  return {};
}

int64_t CpuProgram::scratch_floats(int64_t n) const {
  int64_t vectors = 0;
  for (const Step& s : problem_.then.steps) vectors += operand_of(s.kind) == StepOperand::kVector;
  return vectors * round_up(n, 16);
}

CpuProgram::Columns CpuProgram::on(std::span<const TensorView> in, const TensorView& out, int64_t first, int64_t n,
                                   float* scratch) const {
  Columns c;
  c.first_ = first, c.n_ = n, c.cols_ = cols_of(problem_.out[0].shape);
  c.type_ = problem_.out[0].type, c.y_ = out;
  c.one_factor_ = is_decodable(c.type_);
  TS_CHECK(first == 0 || c.type_.scale.granularity != Granularity::kBlock || first % c.type_.scale.block == 0,
           "a piece that begins at column ", first, " cuts a block of ", to_string(c.type_));
  if (c.one_factor_ && c.type_.scaled()) c.factor_ = 1.0f / *static_cast<const float*>(out.scale);
  for (const Step& s : problem_.then.steps) {
    RowStep& step = c.steps_[c.count_];
    step = {.kind = s.kind, .args = args_of(s)};
    if (s.operand >= 0) {
      const Operand& o = problem_.step_operand(s);
      const TensorView& t = in[static_cast<size_t>(s.operand)];
      step.element = o.type.element;
      if (operand_of(s.kind) == StepOperand::kVector) {
        decode_row(step.element, t.data, first, n, scratch);
        step.vector = scratch;
        scratch += round_up(n, 16);
      } else {
        step.matrix = t.data;
        c.matrices_[c.count_] = {rows_of(o.shape), o.rows().row_stride};
      }
    }
    ++c.count_;
  }
  return c;
}

void CpuProgram::Columns::finish(int64_t row, float* v) const {
  std::array<RowStep, kMaxSteps> steps = steps_;
  for (size_t i = 0; i < count_; ++i) {
    if (steps[i].matrix != nullptr) steps[i].first = row % matrices_[i].rows * matrices_[i].row_stride + first_;
  }
  run_steps({steps.data(), count_}, v, n_);
  const int64_t first = row * cols_ + first_;
  if (one_factor_) return encode_row(type_.element, v, n_, factor_, y_.data, first);
  quantize_row(type_, v, n_,
               {.codes = y_.data,
                .first = first,
                .scale = y_.scale,
                .first_scale = scale_index(type_.scale, row, first_, cols_),
                .scale2 = y_.scale2});
}

}  // namespace tessera
