// SPDX-License-Identifier: Apache-2.0
// Where the time of one run of a plan goes, on this machine: latency of whole runs, and every step's time inside them.
// Host plans: stamps between the steps of real runs. CUDA plans: activities of CUPTI inside the CUDA graph as it runs
// (cupti.h); where CUPTI is not there, events between the steps outside the graph, and a note says so. What measuring
// costs is in Profile::profiled_ms.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "inputs/samples.h"
#include "plan/engine.h"
#include "runtime/executor.h"
#include "traces/profile.h"

namespace tessera {

// When this machine's ceilings are measured (ceilings.h): they are kept in a file.
enum class CeilingsUse : uint8_t { kCached, kAgain, kNone };

struct ProfileOptions {
  int runs = 20;            // at least 1
  int warmup = kOwnWarmup;  // runs before the first that counts
  int device = 0;           // of a CUDA plan
  int threads = 0;          // of a host plan (ExecutorOptions)
  CeilingsUse ceilings = CeilingsUse::kCached;
  std::string path = {};  // the engine's file, for Profile::path and engine_bytes; empty: not told
  // Milliseconds of whole schedules, for engines whose graphs take no inputs at random together (policies: positions
  // follow from what an observation holds). Null: seeded random inputs, lengths of caches at their longest.
  std::function<Result<std::vector<double>>(int runs, int warmup)> time_schedule = {};
};

// The plan of this name; an empty name: the first that users run. The error lists those that there are.
Result<const Plan*> pick_plan(const Engine& engine, const std::string& name);

// Seeded random inputs for runs that are timed; null for ports that lie in a state, so that no run copies into it.
Filled resident_inputs(const Plan& plan);

// On these inputs, and states that are zero when the first run begins. An engine whose target is not here is an
// error.
Result<Profile> profile_plan(const Engine& engine, const Plan& plan, const ProfileOptions& options = {});

}  // namespace tessera
