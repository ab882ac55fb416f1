// SPDX-License-Identifier: Apache-2.0
// Tuning in the plan: where rows are few, a kernel's time is mostly what it leaves to or takes from its neighbours:
// whether its blocks still fit beside theirs, how early its weights can be sent for. So candidates that are close when
// timed alone (tune.h) are timed again with the whole plan around them, all layers of a problem by the same one,
// problem after problem, those that take the most time first, and again until none gets another kernel.
#pragma once

#include <functional>

#include "base/status.h"
#include "plan/engine.h"
#include "plan/tune_cache.h"

namespace tessera {

// Microseconds of one run of the plan. An error with Code::kRefused leaves a candidate out; any other ends the tuning.
using TimePlan = std::function<Result<double>(const Plan& plan)>;
// On the GPU here. `engine` holds the plan's constants and outlives what is returned.
TimePlan time_plan_on_device(const Engine& engine);

// Adds to `table`, by which the plan was made, times in this plan (TunedTime::in_plan_us); problems that have some are
// left as they are. Candidates that want their operands stored otherwise than the plan does, or more workspace, stay
// out. Gives the number of problems that were timed now. What was measured before an error stays in the table.
Result<int64_t> tune_in_plan(const Plan& plan, const TimePlan& time, bool quiet, TuningTable& table);

}  // namespace tessera
