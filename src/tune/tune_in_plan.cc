// SPDX-License-Identifier: Apache-2.0
#include "tune/tune_in_plan.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/progress.h"
#include "inputs/samples.h"
#include "op/op.h"
#include "runtime/executor.h"
#include "runtime/weights.h"
#include "tune/tune.h"

namespace tessera {
namespace {

// A candidate that alone takes longer than the fastest by this does not win in a plan either.
constexpr double kClose = 1.4;
constexpr size_t kMostClose = 6;
constexpr int kRounds = 2;          // the shorter time counts: clocks wander
constexpr double kWorthIt = 0.997;  // of the plan's time: less is noise, and what is there stays
constexpr size_t kMostPasses = 3;   // over all problems: what one is given changes what suits the others

struct Entrant {
  Candidate candidate;
  double alone_us, plan_us;
};

// A problem of the plan whose candidates are to be timed in it.
struct Contest {
  const TunedProblem* problem;
  std::vector<size_t> steps;
  std::vector<Entrant> entrants;  // the plan's own first
  size_t taken = 0;               // of the entrants
};

bool fits(const Plan& plan, const PlanStep& step, const Candidate& c) {
  Problem p = problem_of(plan, step);
  p.config = c.config;
  return check_storage(*c.variant, p, step.workspace_bytes).ok();
}

std::vector<Contest> contests_of(const Plan& plan, const std::vector<TunedProblem>& problems,
                                 const TuningTable& table) {
  std::vector<Contest> contests;
  for (const TunedProblem& t : problems) {
    const std::vector<TunedTime>* times = table.find(t.key);
    if (times == nullptr || times->front().in_plan_us > 0) continue;
    Contest contest{.problem = &t};
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      if (plan.steps[s].op == t.problem.op && problem_key(problem_of(plan, plan.steps[s]), plan.arch) == t.key)
        contest.steps.push_back(s);
    }
    const PlanStep& step = plan.steps[contest.steps[0]];
    for (const TunedTime& time : *times) {
      const Candidate* c = find_candidate(t.all, time);
      if (c == nullptr || time.us > kClose * times->front().us || !fits(plan, step, *c)) continue;
      const bool own = step.variant == time.variant && step.config == time.config;
      contest.entrants.insert(own ? contest.entrants.begin() : contest.entrants.end(), {*c, time.us, 0});
    }
    if (contest.entrants.size() > kMostClose) contest.entrants.resize(kMostClose);
    const bool own_first = !contest.entrants.empty() && step.variant == contest.entrants[0].candidate.variant->name &&
                           step.config == contest.entrants[0].candidate.config;
    if (own_first && contest.entrants.size() > 1) contests.push_back(std::move(contest));
  }
  const auto share = [](const Contest& c) { return static_cast<double>(c.steps.size()) * c.entrants[0].alone_us; };
  std::stable_sort(contests.begin(), contests.end(),
                   [&](const Contest& a, const Contest& b) { return share(a) > share(b); });
  return contests;
}

void set_kernel(Plan& plan, const Contest& contest, const Candidate& c) {
  for (size_t s : contest.steps) plan.steps[s].variant = c.variant->name, plan.steps[s].config = c.config;
}

// Times the entrants with `now` around them, leaves the fastest in it and the times in the table. Says whether another
// one is there than before.
Result<bool> decide(Contest& contest, const TimePlan& time, std::optional<Progress>& progress, Plan& now,
                    TuningTable& table) {
  for (Entrant& e : contest.entrants) e.plan_us = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (Entrant& e : contest.entrants) {
      if (progress) progress->advance();
      if (round > 0 && e.plan_us == 0) continue;  // left out
      set_kernel(now, contest, e.candidate);
      const Result<double> us = time(now);
      if (!us.ok() && us.status().code() != Code::kRefused)
        return us.status().at(cat("tuning layer ", contest.problem->layers[0], ", ",
                                  kernel_name(e.candidate.variant->name, e.candidate.config)));
      if (us.ok()) e.plan_us = e.plan_us == 0 ? *us : std::min(e.plan_us, *us);
    }
  }
  const size_t before = contest.taken;
  const double own_us = contest.entrants[before].plan_us;
  if (own_us == 0)
    return machine_error(cat("the plan as it is could not be timed with layer ", contest.problem->layers[0]));
  for (size_t i = 0; i < contest.entrants.size(); ++i) {
    const double us = contest.entrants[i].plan_us;
    if (us > 0 && us < contest.entrants[contest.taken].plan_us && us < kWorthIt * own_us) contest.taken = i;
  }
  const Entrant& best = contest.entrants[contest.taken];
  set_kernel(now, contest, best.candidate);
  // What was taken counts with its time alone, the others with that and a call's share of what the plan loses by them,
  // which is never nothing.
  for (const Entrant& e : contest.entrants) {
    if (e.plan_us == 0) continue;
    const double lost =
        &e == &best ? 0 : std::max(0.01, (e.plan_us - best.plan_us) / static_cast<double>(contest.steps.size()));
    table.record(contest.problem->key,
                 {e.candidate.variant->name, e.candidate.config, e.alone_us, best.alone_us + lost});
  }
  return contest.taken != before;
}

}  // namespace

TimePlan time_plan_on_device(const Engine& engine) {
  // A plan of milliseconds runs into the power limit, and its clock takes a tenth of a second to settle there; one of
  // microseconds does not.
  constexpr double kLongUs = 1e3, kLongEnoughUs = 40e3, kSettledUs = 300e3;
  struct Kept {
    std::shared_ptr<const Weights> weights;  // from one executor to the next
    Filled inputs;
  };
  const auto kept = std::make_shared<Kept>();
  return [&engine, kept](const Plan& plan) -> Result<double> {
    if (kept->weights == nullptr) {
      TS_ASSIGN(kept->weights, Weights::of(engine, info(plan.arch).device));
      kept->inputs = fill_inputs(plan, random_samples(plan, plan.batch, /*seed=*/1), 0);
    }
    auto executor = bind(engine, plan);
    // What does not fit the plan is bad input; a fault of the GPU is none of the candidate's refusals.
    if (!executor.ok())
      return executor.status().code() == Code::kBadInput ? refused(executor.status().message()) : executor.status();
    const auto median = [&](int repeats) -> Result<double> {
      TS_ASSIGN(std::vector<double> ms, (*executor)->time_runs(kept->inputs.pointers, repeats));
      std::nth_element(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2), ms.end());
      return ms[ms.size() / 2] * 1e3;
    };
    TS_ASSIGN(const double first, median(5));
    return median(
        std::clamp(static_cast<int>((first > kLongUs ? kSettledUs : kLongEnoughUs) / std::max(first, 1.0)), 9, 200));
  };
}

Result<int64_t> tune_in_plan(const Plan& plan, const TimePlan& time, bool quiet, TuningTable& table) {
  const std::vector<TunedProblem> problems = problems_to_tune(plan);
  std::vector<Contest> contests = contests_of(plan, problems, table);
  int64_t calls = 0;  // of a pass
  for (const Contest& c : contests) calls += static_cast<int64_t>(c.entrants.size()) * kRounds;
  std::optional<Progress> progress;
  Plan now = plan;
  size_t settled = 0;  // problems in a row that stayed as they were
  for (size_t turn = 0; settled < contests.size() && turn < kMostPasses * contests.size(); ++turn) {
    Contest& contest = contests[turn % contests.size()];
    if (!quiet && turn % contests.size() == 0)
      progress.emplace(cat("tuning in ", plan.name, turn > 0 ? ", once more" : ""), calls);
    const Activity tuning("tuning in the plan", contest.problem->layers[0]);
    TS_ASSIGN(const bool changed, decide(contest, time, progress, now, table));
    settled = changed ? 1 : settled + 1;
  }
  return static_cast<int64_t>(contests.size());
}

}  // namespace tessera
