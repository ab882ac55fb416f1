// SPDX-License-Identifier: Apache-2.0
#include "assemble/golden_forms.h"

#include <algorithm>

#include "plan/golden_plans.h"
#include "plan/join_engines.h"

namespace tessera {
Result<const GoldenModel*> GoldenForms::model(const PlanCase& of) {
  if (const auto it = models_.find(of); it != models_.end()) return &it->second;
  TS_ASSIGN(GoldenModel made, load_(of));
  return &models_.emplace(of, std::move(made)).first->second;
}

// Few samples are as good as many and cost less; where such a batch is fused in another way, one of the plans' own.
std::vector<PlanCase> GoldenForms::cases_to_try(const std::vector<PlanToMirror>& plans) const {
  std::vector<PlanCase> all;
  for (const int64_t batch : {samples_(plans.back().of.batch), int64_t{1}, plans.front().of.batch}) {
    const PlanCase one{.batch = batch, .sizes = plans.front().of.sizes};
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }
  return all;
}

Result<GoldenForms::Alone> GoldenForms::lower_alone(const LowerOptions& lowering, const PlanCase& of) {
  TS_ASSIGN(const GoldenModel* const made, model(of));
  LowerOptions golden = lowering;
  golden.plan.batch = batch_of(made->prepared);
  golden.plan.sizes = of.sizes;
  golden.plan.name = kGoldenPlan;
  golden.plan.as_reference = true;
  Alone alone;
  ConstantPool pool(alone.engine.constants);
  TS_ASSIGN(Plan plan, lower(made->prepared, golden, pool));
  alone.engine.plans.push_back(std::move(plan));
  return alone;
}

Status GoldenForms::ask_inputs(const Plan& golden, int64_t count) {
  GoldenInputs& known = inputs_[golden.sizes];
  if (known.samples.count == count) return {};
  TS_ASSIGN(known, golden_inputs(golden, count, options_()));
  return {};
}

Result<GoldenForms::Judged> GoldenForms::judged(const Engine& engine, const Plan& golden, const PlanCase& of,
                                                const ModelReport& begun, const Ranges* ranges) {
  TS_ASSIGN(const GoldenModel* const asked, model(of));
  const ModelGraphs graphs = asked->graphs(ranges);
  Judged j{.plan = golden, .report = begun, .written = {}};
  TS_ASSIGN(j.written, judge_golden(engine, golden, inputs_.at(golden.sizes), options_(), &graphs, j.report));
  return j;
}

Status GoldenForms::judge(const std::vector<PlanToMirror>& plans, const Ranges* ranges) {
  Status refusal;
  for (const PlanCase& of : cases_to_try(plans)) {
    const auto alone = lower_alone(plans[0].lowering, of);
    if (alone.status().code() == Code::kRefused) {
      refusal = alone.status();
      continue;
    }
    TS_TRY(alone.status());
    TS_TRY(ask_inputs(alone->plan(), std::max(inputs_[of.sizes].samples.count, alone->plan().batch)));
    TS_ASSIGN(Judged j, judged(alone->engine, alone->plan(), of, plans[0].report, ranges));
    judged_.push_back(std::move(j));
    return {};
  }
  return refusal;
}

std::vector<std::vector<size_t>> GoldenForms::groups_of(const Engine& engine, size_t plans) {
  std::vector<std::vector<size_t>> groups;
  for (size_t p = 0; p < plans; ++p) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const std::vector<size_t>& group) {
      const Plan& first = engine.plans[group[0]];
      return first.sizes == engine.plans[p].sizes && same_form(first, engine.plans[p]);
    });
    if (same == groups.end()) {
      groups.push_back({p});
    } else {
      same->push_back(p);
    }
  }
  return groups;
}

Status GoldenForms::add_plans(Engine& engine, ConstantPool& pool, const std::vector<PlanToMirror>& plans) {
  for (const std::vector<size_t>& group : groups_of(engine, plans.size())) {
    std::vector<PlanToMirror> of;
    for (const size_t p : group) {
      of.push_back(plans[p]);
      of.back().of.batch = engine.plans[p].batch;  // a model may have one of its own
    }
    std::string name = kGoldenPlan;
    if (!case_of_.empty()) {
      name += cat(".", engine.plans[group[0]].name);
      for (const size_t p : group) engine.plans[p].golden = name;
    }
    Alone found;
    Status refusal;
    for (const PlanCase& one : cases_to_try(of)) {
      auto alone = lower_alone(of[0].lowering, one);
      if (!alone.ok() && alone.status().code() != Code::kRefused) return alone.status();
      if (!alone.ok()) {
        refusal = alone.status();
        continue;
      }
      const bool same = same_form(alone->plan(), engine.plans[group[0]]);
      if (!same && !found.engine.plans.empty()) continue;
      found = std::move(alone).value();
      case_of_[name] = one;
      if (same) break;
    }
    if (found.engine.plans.empty()) return refusal;
    Plan golden = adopted(found.plan(), found.engine.constants, pool);
    golden.name = name;
    first_plan_[name] = group[0];
    engine.plans.push_back(std::move(golden));
  }
  return {};
}

Result<Golden> GoldenForms::make_values(const Engine& engine, const std::vector<const Plan*>& goldens,
                                        const std::vector<PlanToMirror>& plans, const Ranges* ranges,
                                        std::vector<ModelReport>& reports) {
  // Of each bucket the plan with the largest batch: its inputs are those of the others.
  std::map<std::map<std::string, int64_t>, const Plan*> largest;
  for (const Plan* golden : goldens) {
    const Plan*& known = largest[golden->sizes];
    if (known == nullptr || known->batch < golden->batch) known = golden;
  }
  for (const auto& [sizes, golden] : largest) TS_TRY(ask_inputs(*golden, golden->batch));
  std::map<std::map<std::string, int64_t>, Golden> stored;
  Golden made;
  for (const Plan* golden : goldens) {
    auto known = std::find_if(judged_.begin(), judged_.end(), [&](const Judged& j) {
      return j.plan.batch == golden->batch && j.plan.sizes == golden->sizes && same_form(j.plan, *golden);
    });
    if (known == judged_.end()) {
      TS_ASSIGN(Judged j,
                judged(engine, *golden, case_of_.at(golden->name), plans[first_plan_.at(golden->name)].report, ranges));
      known = judged_.insert(judged_.end(), std::move(j));
    }
    // What was judged early did not know what it would be called.
    const std::string then = cat("plan ", known->plan.name, ":");
    for (std::string& sentence : known->report.validated) {
      if (sentence.starts_with(then)) sentence.replace(0, then.size(), cat("plan ", golden->name, ":"));
    }
    for (const Plan* p : plans_of(engine, *golden))
      known->report.plans += cat(known->report.plans.empty() ? "" : ", ", p->name);
    reports.push_back(known->report);
    if (golden == largest.at(golden->sizes))
      stored[golden->sizes] = begin_golden(*golden, inputs_.at(golden->sizes), known->written);
  }
  made = stored.at(goldens[0]->sizes);
  made.min_cosine = reports[0].min_cosine;
  for (const Plan* golden : goldens) {
    TS_ASSIGN(GoldenForm form, make_form(engine, *golden, inputs_.at(golden->sizes), options_().quiet));
    if (golden->sizes != goldens[0]->sizes)
      form.inputs = stored.at(golden->sizes).inputs, form.original = stored.at(golden->sizes).original;
    made.forms.push_back(std::move(form));
  }
  return made;
}

}  // namespace tessera
