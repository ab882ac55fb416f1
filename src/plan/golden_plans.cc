// SPDX-License-Identifier: Apache-2.0
#include "plan/golden_plans.h"

#include <algorithm>

namespace tessera {
namespace {

// Types of operands or results; nothing for one that is absent.
std::vector<QuantType> types_of(const Plan& plan, const std::vector<int>& tensors) {
  std::vector<QuantType> types;
  for (const int t : tensors) types.push_back(t < 0 ? QuantType() : plan.tensors[static_cast<size_t>(t)].desc.type);
  return types;
}

bool is_present(int tensor) { return tensor >= 0; }

bool same_step(const Plan& a, const PlanStep& x, const Plan& b, const PlanStep& y) {
  return x.op == y.op && x.layer == y.layer && x.then == y.then && types_of(a, x.in) == types_of(b, y.in) &&
         types_of(a, x.out) == types_of(b, y.out) &&
         std::equal(x.in.begin(), x.in.end(), y.in.begin(), y.in.end(),
                    [](int s, int t) { return is_present(s) == is_present(t); });
}

}  // namespace

bool is_golden(const Plan& plan) {
  return plan.name == kGoldenPlan || plan.name.starts_with(std::string(kGoldenPlan) + ".");
}

std::vector<const Plan*> golden_plans(const Engine& engine) {
  std::vector<const Plan*> plans;
  for (const Plan& p : engine.plans) {
    if (is_golden(p)) plans.push_back(&p);
  }
  return plans;
}

const Plan* golden_plan(const Engine& engine) {
  const std::vector<const Plan*> plans = golden_plans(engine);
  return plans.empty() ? nullptr : plans[0];
}

const Plan* golden_plan(const Engine& engine, const Plan& plan) {
  if (is_golden(plan)) return &plan;
  const std::string name = plan.golden.empty() ? kGoldenPlan : plan.golden;
  for (const Plan* p : golden_plans(engine)) {
    if (p->name == name) return p;
  }
  return nullptr;
}

std::vector<const Plan*> plans_of(const Engine& engine, const Plan& golden) {
  std::vector<const Plan*> plans;
  for (const Plan& p : engine.plans) {
    if (!is_golden(p) && golden_plan(engine, p) == &golden) plans.push_back(&p);
  }
  return plans;
}

const GoldenForm* golden_form(const Engine& engine, const Plan& golden) {
  const auto& forms = engine.golden.forms;
  const auto it =
      std::find_if(forms.begin(), forms.end(), [&](const GoldenForm& form) { return form.plan == golden.name; });
  return it == forms.end() ? nullptr : &*it;
}

bool has_golden_values(const Engine& engine, const Plan& plan) {
  const Plan* golden = golden_plan(engine, plan);
  return golden != nullptr && golden_form(engine, *golden) != nullptr;
}

bool same_form(const Plan& a, const Plan& b) {
  return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                    [&](const PlanStep& x, const PlanStep& y) { return same_step(a, x, b, y); });
}

}  // namespace tessera
