// SPDX-License-Identifier: Apache-2.0
// Where the time of one answer of an engine goes: of one plan, or of a whole schedule (a policy: vision, prefix, ten
// times step). Each graph of a schedule is profiled by itself, over states of zeros, and counts as often as it runs;
// the latency is measured over the whole schedule.
#pragma once

#include <string>
#include <vector>

#include "archs/chip.h"
#include "profile/profile_plan.h"

namespace tessera {

struct ScheduledPlan {
  const Plan* plan;
  int64_t times = 1;
};
// In the order in which they run; one, once: a plan by itself.
using PlansOfAnswer = std::vector<ScheduledPlan>;

// The plan of this name; without a name the engine's schedule over the plans that a session takes (of each graph the
// smallest batch, of its buckets the largest), else the first plan that users run. The error lists the plans.
Result<PlansOfAnswer> plans_of_answer(const Engine& engine, const std::string& name);
// What users run: the schedule alone, or each plan by itself.
std::vector<PlansOfAnswer> answers_of(const Engine& engine);

// "batch1"; "vision.batch1, prefix.batch1, 10 x step.batch1"
std::string name_of(const PlansOfAnswer& plans);

Result<Profile> profile_engine(const Engine& engine, const PlansOfAnswer& plans, const ProfileOptions& options = {});
Result<Profile> predict_engine(const Engine& engine, const PlansOfAnswer& plans, const Chip& chip,
                               const std::string& path = "");

}  // namespace tessera
