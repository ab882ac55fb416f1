// SPDX-License-Identifier: Apache-2.0
#include "cli/layers.h"

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
    ++group->layers;
    group->names += cat(group->names.empty() ? "" : ", ", s.layer, s.role.empty() || s.role == "block" ? "" : " (" + s.role + ")");
  }
  return groups;
}

std::vector<const Plan*> runnable_plans(const Engine& engine) {
  std::vector<const Plan*> plans;
  for (const Plan& p : engine.plans) {
    if (p.name != "golden") plans.push_back(&p);
  }
  return plans;
}

}  // namespace tessera
