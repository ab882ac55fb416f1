// SPDX-License-Identifier: Apache-2.0
#include "cli/layers.h"

#include <algorithm>
#include <set>

#include "archs/cpu/simd.h"
#include "cli/output.h"
#include "hwy/targets.h"
#include "ops/op.h"
#include "tiles/cpu_product.h"

namespace tessera {

std::vector<PromiseGroup> promise_groups(const Plan& plan) {
  std::vector<PromiseGroup> groups;
  for (const PlanStep& s : plan.steps) {
    if (s.asked.empty()) continue;
    PromiseGroup* group = nullptr;
    for (PromiseGroup& g : groups) {
      if (g.asked == s.asked && g.stored == s.stored && g.computed == s.computed) group = &g;
    }
    if (group == nullptr) group = &groups.emplace_back(PromiseGroup{s.asked, s.stored, s.computed, "", 0});
    for (const std::string& layer : layers_of(s)) {
      ++group->layers;
      group->names += cat(group->names.empty() ? "" : ", ", layer, s.role.empty() || s.role.starts_with("block") ? "" : " (" + s.role + ")");
    }
  }
  return groups;
}

std::vector<const Plan*> runnable_plans(const Engine& engine) {
  std::vector<const Plan*> plans;
  for (const Plan& p : engine.plans) {
    if (p.name != kGoldenPlan) plans.push_back(&p);
  }
  return plans;
}

std::string say_folded_norms(const Plan& plan) {
  std::set<int> moments;  // a norm's readers share those of its rows
  for (const PlanStep& s : plan.steps) {
    if (const Step* step = s.then.find(StepKind::normalise)) moments.insert(s.in[static_cast<size_t>(step->operand)]);
  }
  const int64_t norms = static_cast<int64_t>(moments.size());
  if (norms == 0) return "";
  return cat(plural(norms, "norm"), norms == 1 ? " is no kernel: it is" : " are no kernels: each is", " a factor per row in the matmul behind it");
}

std::vector<OpCount> count_ops(const Plan& plan) {
  std::vector<OpCount> counts;
  for (const OpInfo* op : all_ops()) {
    counts.push_back({op->name, std::count_if(plan.steps.begin(), plan.steps.end(),
                                              [&](const PlanStep& s) { return s.op == op->name; })});
  }
  return counts;
}

std::string cpu_instruction_sets(const Plan& plan) {
  std::string best, compiled;
  for (int bit = 62; bit >= 0; --bit) {  // better sets have lower bits
    const int64_t target = int64_t{1} << bit;
    if ((HWY_TARGETS & target) == 0) continue;
    if ((hwy::SupportedTargets() & target) != 0) best = hwy::TargetName(target);
    compiled += cat(compiled.empty() ? "" : ", ", hwy::TargetName(target));
  }
  const bool in_bf16 =
      std::any_of(plan.steps.begin(), plan.steps.end(), [](const PlanStep& s) { return s.computed == "bf16"; });
  return cat(best, " (compiled: ", compiled, ")",
             in_bf16 ? cat(", products of bf16 by ", bf16_product().instruction) : "");
}

}  // namespace tessera
