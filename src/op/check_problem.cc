// SPDX-License-Identifier: Apache-2.0
#include "op/op.h"
#include "op/row_moments.h"

namespace tessera {
namespace {

Status check_step(const Problem& p, size_t at) {
  const Step& step = p.then.steps[at];
  const std::string what = cat(p.op, ": step ", name_of(step.kind));
  const StepOperand wanted = operand_of(step.kind);
  if (wanted == StepOperand::kNone) return {};
  if (step.operand < 0 || p.operand(static_cast<size_t>(step.operand)) == nullptr)
    return bad_input(what + " has no operand");
  const Shape& y = p.out[0].shape;
  const Shape& s = p.step_operand(step).shape;
  if (y.empty()) return bad_input(what + ": the result has no columns");
  if (wanted == StepOperand::kMoments) {
    if (at != 0) return bad_input(what + " must be the first step");
    TS_TRY(check_moments(p, p.step_operand(step)).at(what));
    return {};
  }
  const int64_t cols = p.then.cols_before(at, y.back());
  if (wanted == StepOperand::kVector) {
    if (s != Shape{cols}) return bad_input(cat(what, " wants [", cols, "], has ", to_string(s)));
    return {};
  }
  // A matrix may have fewer rows than the result: they repeat.
  const int64_t all = p.then.cols_before(at, elements(y)), here = elements(s);
  if (s.empty() || s.back() != cols || (all != 0 && (here == 0 || all % here != 0))) {
    return bad_input(
        cat(what, " wants rows of ", cols, " that repeat evenly over ", to_string(y), ", has ", to_string(s)));
  }
  return {};
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
  for (size_t i = 0; i < p.then.steps.size(); ++i) {
    TS_TRY(check_step(p, i));
    if (p.then.steps[i].kind == StepKind::quantize && i + 1 != p.then.steps.size())
      return bad_input(cat(op.name, ": quantize must be the last step"));
    if (p.then.steps[i].kind == StepKind::gate && &p.then.steps[i] != p.then.find(StepKind::gate))
      return bad_input(cat(op.name, ": a program has one gate at most"));
  }
  return {};
}

}  // namespace tessera
