// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "op/op.h"
#include "steps/step.h"

namespace tessera {
namespace {

Status check_step(const Problem& p, size_t at) {
  const Step& step = p.then.steps[at];
  const StepForm& form = form_of(step.kind);
  if (!std::all_of(step.numbers.begin(), step.numbers.end(), [](double x) { return std::isfinite(x); }))
    return bad_input("has a number that is not finite");
  const Operand none;
  const bool reads = form.operand != StepOperand::kNone;
  if (reads && (step.operand < 0 || p.operand(static_cast<size_t>(step.operand)) == nullptr))
    return bad_input("has no operand");
  const Shape& y = p.out[0].shape;
  if (reads && y.empty()) return bad_input("the result has no columns");
  if (info(step.kind).check == nullptr) return {};
  const Operand& operand = reads ? p.step_operand(step) : none;
  return info(step.kind).check({.step = step,
                                .attrs = p.attrs,
                                .x = p.in[0].shape,
                                .y = y,
                                .cols = p.then.cols_before(at, y.empty() ? 1 : y.back()),
                                .count = p.then.cols_before(at, elements(y)),
                                .operand = operand.shape,
                                .operand_type = operand.type,
                                .operand_dense = operand.dense()});
}

}  // namespace

Status check_problem(const OpInfo& op, const Problem& p) {
  const auto check_operand = [&](const Operand& o) -> Status {
    if (!o.present) return {};
    if (o.strides.size() != o.shape.size())
      return bad_input(cat(op.name, ": shape ", to_string(o.shape), " has strides ", to_string(o.strides)));
    for (int64_t d : o.shape) {
      if (d < 0) return bad_input(cat(op.name, ": negative size in ", to_string(o.shape)));
    }
    return {};
  };
  for (const Operand& o : p.in) TS_TRY(check_operand(o));
  for (const Operand& o : p.out) TS_TRY(check_operand(o));
  TS_ASSIGN(const std::vector<Type> types, infer_types(op, p));
  if (types.size() != p.out.size())
    return bad_input(cat(op.name, ": makes ", types.size(), " results, not ", p.out.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    if (!p.out[i].present || p.out[i].shape != types[i].shape) {
      return bad_input(
          cat(op.name, ": result is ", to_string(p.out[i].shape), ", the operands imply ", to_string(types[i].shape)));
    }
  }
  if (!p.then.empty() && !op.takes_program) return bad_input(cat(op.name, ": runs no program after it"));
  if (p.then.gated() && !op.takes_gate) return bad_input(cat(op.name, ": runs no gate after it"));
  if (const std::string misplaced = misplaced_step(p.then); !misplaced.empty())
    return bad_input(cat(op.name, ": ", misplaced));
  for (size_t i = 0; i < p.then.steps.size(); ++i)
    TS_TRY(check_step(p, i).at(cat(op.name, ": step ", name_of(p.then.steps[i].kind))));
  return {};
}

}  // namespace tessera
