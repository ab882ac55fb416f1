// SPDX-License-Identifier: Apache-2.0
// Programs that kernels without tensor cores run, number by number in fp32 (tiles/cuda/program.cuh): what they ask of a
// program's operands, and the program as such a kernel takes it.
#pragma once

#include <algorithm>
#include <span>

#include "op/extra_results.h"
#include "op/variant.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_steps.h"

namespace tessera {

// `results`: how many numbers there are.
inline Verdict accepts_device_program(const Problem& p, int64_t results) {
  TS_REQUIRE(results <= kMaxDeviceElements, "the result has ", results, " elements; its indices have 31 bits");
  TS_REQUIRE(p.then.steps.size() <= kMaxDeviceSteps, "the program has ", p.then.steps.size(), " steps; at most ",
             kMaxDeviceSteps, " run at once");
  TS_REQUIRE(!has_folded_norm(p), kNoFoldedNorm);
  TS_REQUIRE(!keeps_columns(p), kNoKeptColumns);
  TS_REQUIRE(p.then.among(kDeviceSteps), kDeviceSteps.says_in_any_order());
  for (const Step& step : p.then.steps) {
    if (operand_of(step.kind) == StepOperand::kNone) continue;
    const Operand& o = p.step_operand(step);
    TS_REQUIRE(o.layout == Layout::kRows, name_of(step.kind), " must lie in rows");
    if (operand_of(step.kind) == StepOperand::kVector) {
      TS_REQUIRE(is_device_float(o.type) && o.dense(), name_of(step.kind),
                 " must be a dense vector of f32, f16 or bf16, not ", to_string(o.type));
    } else {
      TS_REQUIRE(is_device_number(o.type), name_of(step.kind),
                 " is read as f32, f16, bf16 or e4m3 with one static scale, not ", to_string(o.type));
      TS_REQUIRE(o.rows().uniform, name_of(step.kind), " must have uniform rows");
    }
  }
  return {};
}

// Arithmetic::activation_error: one function has a faster form for results that are not f32 (tiles/cuda/gelu_fast.h).
inline double device_program_error(const Program& then, const QuantType& y) {
  const bool fast = y.element != Element::f32 && std::any_of(then.steps.begin(), then.steps.end(), [](const Step& s) {
                      return s.kind == StepKind::act && s.fn == Unary::gelu_erf;
                    });
  return fast ? 0x1p-21 : 0;
}

// Contract: accepts_device_program said yes. `from`: the sums where another kernel made them.
inline DeviceSteps device_steps(const Problem& p, int64_t rows, int64_t cols, std::span<const TensorView> in,
                                const TensorView& y, DeviceTensor from) {
  DeviceSteps d;
  d.rows = rows;
  d.cols = cols;
  d.from = from;
  d.y = device_tensor(y);
  for (const Step& step : p.then.steps) {
    DeviceStep& s = d.step[d.count++];
    s.kind = step.kind;
    s.args = args_of(step);
    if (operand_of(step.kind) == StepOperand::kNone) continue;
    s.operand = device_tensor(in[static_cast<size_t>(step.operand)]);
    if (operand_of(step.kind) != StepOperand::kMatrix) continue;
    const RowView view = p.step_operand(step).rows();
    s.rows = FastDivide(static_cast<uint32_t>(view.rows));
    s.row_stride = view.row_stride;
  }
  return d;
}

}  // namespace tessera
