// SPDX-License-Identifier: Apache-2.0
#include "golden/layer_judge.h"

#include <algorithm>
#include <map>

#include "op/reference.h"
#include "ops/ops.h"

namespace tessera {

Result<LayerJudge> LayerJudge::make(const Engine& engine, const Plan& plan, const Plan& golden) {
  LayerJudge judge(engine, plan, golden);
  std::map<std::string, int> named;
  for (const PlanStep& s : plan.steps) ++named[s.layer];
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& s = plan.steps[i];
    auto judged = judged_step(plan, golden, i);
    if (!judged.ok()) return judged.status().at(cat("plan '", plan.name, "': step ", i, " ('", s.layer, "')"));
    judge.judged_.push_back(std::move(judged).value());
    LayerReport r;
    r.differs = judge.judged_.back().differs;
    r.layer = named[s.layer] > 1 ? cat(s.layer, ", step ", i + 1) : s.layer;
    r.op = s.op, r.variant = s.variant;
    judge.reports_.push_back(std::move(r));
  }
  return judge;
}

void LayerJudge::see(const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
  const size_t index = static_cast<size_t>(&step - plan_.steps.data());
  const OpInfo* op = find_op(step.op);
  const Variant* variant = find_variant(step.variant);
  TS_CHECK(index < reports_.size() && op != nullptr && variant != nullptr, "a step of another plan");
  const JudgedStep& judged = judged_[index];
  const JudgedViews views = views_of(engine_, golden_, judged, in, out);
  if (op->check_numbers != nullptr && status_.ok()) {
    std::vector<Dense> numbers;
    for (const TensorView& t : views.in) numbers.push_back(t.desc == nullptr ? Dense{} : decode(t));
    const Status found = op->check_numbers(judged.problem, numbers);
    if (!found.ok()) status_ = found.at(cat("layer ", step.layer, ", with the golden plan's constants"));
  }
  if (!status_.ok()) return;
  const Judge judge(*op, *variant, judged.problem, views.in, views.out);
  const Judgement found = judge.of(views.out);
  LayerReport& r = reports_[index];
  r.emulated = judge.emulated();
  r.finite = r.finite && found.finite;
  r.results += found.results, r.differ += found.differ, r.may_differ += found.may_differ;
  if (found.share < r.share) return;
  r.relative_l2 = found.relative_l2, r.bound = found.allowed_l2, r.cosine = found.cosine, r.share = found.share;
  r.got = found.got, r.low = found.low, r.high = found.high;
}

}  // namespace tessera
