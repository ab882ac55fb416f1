// SPDX-License-Identifier: Apache-2.0
#include "golden/judged_step.h"

#include <algorithm>
#include <optional>

#include "ops/ops.h"

namespace tessera {
namespace {

const PlanTensor* tensor_at(const Plan& plan, int tensor) {
  return tensor < 0 ? nullptr : &plan.tensors[static_cast<size_t>(tensor)];
}

const PlanTensor* constant_at(const Plan& plan, int tensor) {
  const PlanTensor* t = tensor_at(plan, tensor);
  return t != nullptr && t->storage == Storage::kConstant ? t : nullptr;
}

void* bytes_of(const Engine& engine, const PlanTensor* constant) {
  if (constant == nullptr) return nullptr;
  const Bytes& data = engine.constants[static_cast<size_t>(constant->index)].data;
  return const_cast<uint8_t*>(data.data()) + constant->offset_bytes;
}

bool same_but_first_axis(const Shape& a, const Shape& b) {
  return a.size() == b.size() && !a.empty() && std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

// The operand as the smaller plan has it: the first samples of it. Nothing where their shapes differ in more than the
// batch.
std::optional<Operand> first_samples(const Operand& whole, const Operand& few, int64_t batch, int64_t few_batch) {
  if (whole.shape == few.shape) return whole;
  if (whole.layout != Layout::kRows || !same_but_first_axis(whole.shape, few.shape)) return {};
  const int64_t rows = whole.shape[0], few_rows = few.shape[0];
  if (rows % batch != 0 || few_rows % few_batch != 0 || rows / batch != few_rows / few_batch) return {};
  Operand o = whole;
  o.shape[0] = few_rows;
  return o;
}

// The problem over as many samples as are compared; nothing where it cannot be cut to them.
std::optional<Problem> cut_to_golden(Problem p, const Problem& want, int64_t batch, int64_t few_batch) {
  if (batch <= few_batch) return p;
  const auto cut_all = [&](const std::vector<Operand>& smaller, std::vector<Operand>& into) {
    for (size_t i = 0; i < into.size(); ++i) {
      const auto o = first_samples(into[i], smaller[i], batch, few_batch);
      if (!o) return false;
      into[i] = *o;
    }
    return true;
  };
  if (cut_all(want.in, p.in) && cut_all(want.out, p.out)) return p;
  return {};
}

Status check_same_types(const std::vector<Operand>& plan, const std::vector<Operand>& golden, const char* what) {
  if (plan.size() != golden.size())
    return bad_input(cat("it has ", plan.size(), " ", what, "s, ", golden.size(), " in the golden plan"));
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].present != golden[i].present)
      return bad_input(cat(what, " ", i, " is present in only one of this plan and the golden plan"));
    if (plan[i].type != golden[i].type)
      return bad_input(
          cat(what, " ", i, " is ", to_string(plan[i].type), ", ", to_string(golden[i].type), " in the golden plan"));
  }
  return {};
}

// The golden plan's constants hold all that the operand asks of them: scales enough, and its rows first.
Status check_constants(const Plan& golden, int tensor, const Operand& o) {
  const PlanTensor* t = tensor_at(golden, tensor);
  if (t == nullptr) return {};
  const bool data = t->storage == Storage::kConstant;
  if (data && t->desc.shape != o.shape &&
      !(same_but_first_axis(t->desc.shape, o.shape) && t->desc.shape[0] >= o.shape[0])) {
    return bad_input(cat("constant '", t->name, "' of the golden plan is ", to_string(t->desc.shape), ", ",
                         to_string(o.shape), " here"));
  }
  const int64_t cols = o.shape.empty() ? 1 : o.shape.back(), rows = elements(o.shape) / std::max<int64_t>(1, cols);
  for (const auto& [scale, level, layout] :
       {std::tuple{t->scale, o.type.scale, o.layout.scales}, {t->scale2, o.type.scale2, Layout::kRows}}) {
    if (level.granularity == Granularity::kNone) continue;
    const PlanTensor* s = constant_at(golden, scale);
    if (s == nullptr && data) return bad_input(cat("the scales of the golden plan's '", t->name, "' are no constants"));
    // Of a constant the whole description is the golden plan's; else the scales are read as this plan's lie.
    if (s != nullptr && !data && s->desc.layout.codes != layout)
      return bad_input(cat("the scales of the golden plan's '", t->name, "' lie in '", name_of(s->desc.layout.codes),
                           "', here in '", name_of(layout), "'"));
    if (s != nullptr && elements(s->desc.shape) < scale_count(level, rows, cols))
      return bad_input(cat("the golden plan's '", t->name, "' has too few scales for ", to_string(o.shape)));
  }
  return {};
}

// The golden plan's scales in place of the plan's, where they are constants.
TensorView with_golden_scales(const Engine& engine, const Plan& golden, const PlanTensor& t, TensorView view) {
  if (void* scale = bytes_of(engine, constant_at(golden, t.scale)); scale != nullptr) view.scale = scale;
  if (void* scale2 = bytes_of(engine, constant_at(golden, t.scale2)); scale2 != nullptr) view.scale2 = scale2;
  return view;
}

}  // namespace

int same_step(const Plan& of, size_t step, const Plan& in) {
  const PlanStep& s = of.steps[step];
  if (of.steps.size() == in.steps.size()) return static_cast<int>(step);
  const auto same = [&](const PlanStep& other) { return other.op == s.op && other.layer == s.layer; };
  auto before = std::count_if(of.steps.begin(), of.steps.begin() + static_cast<std::ptrdiff_t>(step), same);
  for (size_t i = 0; i < in.steps.size(); ++i) {
    if (same(in.steps[i]) && before-- == 0) return static_cast<int>(i);
  }
  return -1;
}

Result<JudgedStep> judged_step(const Plan& plan, const Plan& golden, size_t step) {
  const PlanStep& s = plan.steps[step];
  const OpInfo* op = find_op(s.op);
  if (op == nullptr) return bad_input(cat("this program has no op '", s.op, "'"));
  JudgedStep m{.problem = problem_of(plan, s), .golden = same_step(plan, step, golden)};
  m.problem.config = s.config;
  if (m.golden < 0) return m;
  const PlanStep& g = golden.steps[static_cast<size_t>(m.golden)];
  if (s.op != g.op) return bad_input(cat("it is '", s.op, "', '", g.op, "' in the golden plan"));
  const Problem want = problem_of(golden, g);
  TS_TRY(check_same_types(m.problem.in, want.in, "operand"));
  TS_TRY(check_same_types(m.problem.out, want.out, "result"));
  for (const auto& [key, value] : m.problem.attrs.all()) {
    const auto it = want.attrs.all().find(key);
    if (it != want.attrs.all().end() && it->second != value)
      m.differs = cat("its attribute '", key, "' is another than in the golden plan");
  }
  if (m.problem.then != want.then) m.differs = "its program is another than in the golden plan";
  Problem p = m.problem;
  p.attrs = want.attrs;
  p.then = want.then;
  const std::optional<Problem> cut = cut_to_golden(std::move(p), want, plan.batch, golden.batch);
  if (!cut) {  // all samples of the plan, with its own constants
    m.problem.attrs = want.attrs, m.problem.then = want.then, m.golden = -1;
    TS_TRY(check_problem(*op, m.problem).at("with the golden plan's attributes and program"));
    return m;
  }
  m.problem = *cut;
  TS_TRY(check_problem(*op, m.problem).at("with the golden plan's attributes and program"));
  for (size_t i = 0; i < g.in.size(); ++i) TS_TRY(check_constants(golden, g.in[i], m.problem.in[i]));
  for (size_t i = 0; i < g.out.size(); ++i) TS_TRY(check_constants(golden, g.out[i], m.problem.out[i]));
  for (size_t i = 0; i < g.in.size(); ++i) {
    const PlanTensor* constant = constant_at(golden, g.in[i]);
    if (constant == nullptr) continue;
    Operand& o = m.problem.in[i];
    const Shape shape = o.shape;
    o = constant->desc;
    o.constant = true;
    if (o.shape != shape) o.shape = shape, o.strides = o.dense() ? dense_strides(shape) : o.strides;
  }
  return m;
}

JudgedViews views_of(const Engine& engine, const Plan& golden, const JudgedStep& judged, std::span<const TensorView> in,
                     std::span<const TensorView> out) {
  JudgedViews views{{in.begin(), in.end()}, {out.begin(), out.end()}};
  const PlanStep* step = judged.golden < 0 ? nullptr : &golden.steps[static_cast<size_t>(judged.golden)];
  for (size_t i = 0; i < in.size(); ++i) {
    TensorView& view = views.in[i];
    if (view.desc == nullptr) continue;
    view.desc = &judged.problem.in[i];
    const PlanTensor* t = step == nullptr ? nullptr : tensor_at(golden, step->in[i]);
    if (t == nullptr) continue;
    if (t->storage == Storage::kConstant) view.data = bytes_of(engine, t), view.scale = view.scale2 = nullptr;
    view = with_golden_scales(engine, golden, *t, view);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    views.out[i].desc = &judged.problem.out[i];
    if (step != nullptr)
      views.out[i] =
          with_golden_scales(engine, golden, golden.tensors[static_cast<size_t>(step->out[i])], views.out[i]);
  }
  return views;
}

}  // namespace tessera
