// SPDX-License-Identifier: Apache-2.0
// Profiles as commands get them: from a file of any tool (traces/reader.h), or of an engine, which is profiled here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "profile/profile_engine.h"
#include "traces/reader.h"

namespace tessera {

// Those of the file, then those of the program; without a file the program's alone.
Result<Rules> open_rules(const std::string& path);

// plans_of_answer (profile/profile_engine.h), whose error names the file and the nearest name.
Result<PlansOfAnswer> open_plans(const std::string& path, const Engine& engine, const std::string& plan);
// A whole observation of a policy, for ProfileOptions::time_schedule; null where the engine is none.
std::function<Result<std::vector<double>>(int runs, int warmup)> timer_of_policy(const Engine& engine);
// Says which of an engine's plans a profile is of where nobody chose.
void note_other_plans(const Engine& engine, const PlansOfAnswer& plans, const std::string& plan, Profile& profile);

// `path` is a profile, or an engine, of which `plan` is profiled (empty: its schedule, else the first). The error names
// the file.
Result<Profile> open_profile(const std::string& path, const Rules& rules, const ReadOptions& options,
                             const std::string& plan = "");

}  // namespace tessera
