// SPDX-License-Identifier: Apache-2.0
// Tuning: every candidate (variant and config) of every distinct problem of a plan, timed on the GPU here. What the
// table already holds is not measured again. The times go into the table; plan/choose reads them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/choose.h"
#include "plan/plan.h"
#include "plan/tune_cache.h"

namespace tessera {

// A problem of a plan that more than one candidate may run.
struct TunedProblem {
  std::string key;
  Problem problem;  // storage orders and config left open, as before a choice
  std::vector<Candidate> all;
  std::vector<std::string> layers;  // whose problem it is
};
std::vector<TunedProblem> problems_to_tune(const Plan& plan);

// Microseconds of one call. An error with Code::kRefused leaves the candidate out; any other ends the tuning.
using TimeCandidate = std::function<Result<double>(const Candidate& candidate, const Problem& problem)>;
// On the GPU here (runtime/time_kernel.h); a kernel that cannot be bound is refused.
TimeCandidate time_on_device();

struct TuneOptions {
  TimeCandidate time;
  bool quiet = true;
};
struct TuneReport {
  int64_t problems = 0;               // with more than one candidate
  int64_t measured = 0;               // candidates timed now; the others were in the table
  std::vector<std::string> left_out;  // candidates that could not be timed, with the reason
};
// Adds to `table` what is missing for the plan. What was measured before an error stays in it.
Result<TuneReport> tune(const Plan& plan, const TuneOptions& options, TuningTable& table);

}  // namespace tessera
