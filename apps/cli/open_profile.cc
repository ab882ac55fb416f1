// SPDX-License-Identifier: Apache-2.0
#include "cli/open_profile.h"

#include <cstring>
#include <memory>

#include "base/words/nearest_word.h"
#include "cli/open_engine.h"
#include "io/mmap.h"
#include "policy/policy.h"
#include "runtime/batches.h"

namespace tessera {
namespace {

// The one place where an engine becomes a profile.
Result<Profile> profile_of(const std::string& path, const std::string& name) {
  TS_ASSIGN(const Engine engine, open_engine(path));
  TS_ASSIGN(const PlansOfAnswer plans, open_plans(path, engine, name));
  if (const Status here = check_runs_here(engine); !here.ok())
    return Status(here.code(), cat(path, ": ", here.message(), "; where it runs, tessera profile ", path,
                                   " --json makes a profile that can be explained anywhere"));
  TS_ASSIGN(Profile p, profile_engine(engine, plans, {.path = path, .time_schedule = timer_of_policy(engine)}));
  note_other_plans(engine, plans, name, p);
  return p;
}

bool begins_as_engine(const Bytes& file) { return file.size() >= 7 && std::memcmp(file.data(), "TESSERA", 7) == 0; }

}  // namespace

Result<PlansOfAnswer> open_plans(const std::string& path, const Engine& engine, const std::string& plan) {
  auto plans = plans_of_answer(engine, plan);
  if (plans.ok()) return plans;
  std::vector<std::string> names;
  for (const Plan* p : runnable_plans(engine)) names.push_back(p->name);
  return Status(plans.status().code(), cat(path, ": ", plans.status().message(), did_you_mean(plan, names)));
}

std::function<Result<std::vector<double>>(int runs, int warmup)> timer_of_policy(const Engine& engine) {
  auto made =
      engine.schedule.empty() ? Result<std::unique_ptr<Policy>>(bad_input("has no schedule")) : Policy::make(engine);
  if (!made.ok()) return {};
  const std::shared_ptr<Policy> policy = std::move(made).value();
  return [policy](int runs, int warmup) -> Result<std::vector<double>> {
    TS_ASSIGN(PolicyTimes times, policy->time(seeded_observation(policy->sizes(), /*seed=*/1), runs, warmup));
    return std::move(times.resident_ms);
  };
}

void note_other_plans(const Engine& engine, const PlansOfAnswer& plans, const std::string& plan, Profile& profile) {
  const size_t all = runnable_plans(engine).size();
  if (plan.empty() && plans.size() == 1 && plans[0].times == 1 && all > 1)
    profile.notes.push_back(cat("this is plan ", profile.plan, ", one of ", all, "; --plan NAME takes another"));
}

Result<Rules> open_rules(const std::string& path) {
  if (path.empty()) return with_built_in({});
  Result<Rules> rules = read_rules(path);
  if (rules.ok()) return rules;
  return Status(rules.status().code(), "--rules " + rules.status().message() + hint_for_missing(path));
}

Result<Profile> open_profile(const std::string& path, const Rules& rules, const ReadOptions& options,
                             const std::string& plan) {
  const auto file = map_file(path);
  if (!file.ok()) return Status(file.status().code(), file.status().message() + hint_for_missing(path));
  if (!begins_as_engine(*file)) return read_profile(path, rules, options);
  if (options.runs > 0 || !options.beside.empty())
    return usage_error(cat(path, " is an engine: runs and further files belong to profiles of other tools"));
  return profile_of(path, plan);
}

}  // namespace tessera
