// SPDX-License-Identifier: Apache-2.0
#include "cli/open_profile.h"

#include <cstring>

#include "cli/help.h"
#include "cli/open_engine.h"
#include "io/mmap.h"
#include "profile/profile_plan.h"
#include "runtime/batches.h"

namespace tessera {
namespace {

// The one place where an engine becomes a profile.
Result<Profile> profile_of(const std::string& path, const std::string& name) {
  TS_ASSIGN(const Engine engine, open_engine(path));
  std::vector<std::string> names;
  for (const Plan* p : runnable_plans(engine)) names.push_back(p->name);
  const Result<const Plan*> plan = pick_plan(engine, name);
  if (!plan.ok())
    return Status(plan.status().code(), cat(path, ": ", plan.status().message(), did_you_mean(name, names)));
  if (const Status here = check_runs_here(engine); !here.ok())
    return Status(here.code(), cat(path, ": ", here.message(), "; where it runs, tessera profile ", path,
                                   " --json makes a profile that can be explained anywhere"));
  TS_ASSIGN(Profile p, profile_plan(engine, **plan, {.path = path}));
  if (name.empty() && names.size() > 1)
    p.notes.push_back(cat("this is plan ", p.plan, ", one of ", names.size(), "; --plan NAME takes another"));
  return p;
}

bool begins_as_engine(const Bytes& file) { return file.size() >= 7 && std::memcmp(file.data(), "TESSERA", 7) == 0; }

}  // namespace

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
