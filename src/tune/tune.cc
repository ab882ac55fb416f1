// SPDX-License-Identifier: Apache-2.0
#include "tune/tune.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/progress.h"
#include "op/op.h"
#include "ops/ops.h"
#include "runtime/time_kernel.h"

namespace tessera {

std::vector<TunedProblem> problems_to_tune(const Plan& plan) {
  std::vector<TunedProblem> problems;
  for (const PlanStep& s : plan.steps) {
    const OpInfo* op = find_op(s.op);
    if (op == nullptr) continue;
    Problem p = problem_of(plan, s);
    p.config.clear();
    for (Operand& o : p.in) o.layout = Layout::kRows;
    std::string key = problem_key(p, plan.arch);
    const auto known =
        std::find_if(problems.begin(), problems.end(), [&](const TunedProblem& t) { return t.key == key; });
    if (known != problems.end()) {
      known->layers.push_back(s.layer);
      continue;
    }
    std::vector<Candidate> all = candidates(*op, p, plan.arch);
    if (all.size() > 1) problems.push_back({std::move(key), std::move(p), std::move(all), {s.layer}});
  }
  return problems;
}

TimeCandidate time_on_device() {
  // Candidates of one problem come one after another: they share its operands.
  struct Operands {
    std::string key;
    ProblemBytes bytes;
  };
  const auto last = std::make_shared<Operands>();
  return [last](const Candidate& c, const Problem& problem) -> Result<double> {
    Problem p = problem;
    p.config = c.config;
    if (c.variant->bind == nullptr) return refused("this build holds only its contract");
    if (const auto bound = c.variant->bind(p); !bound.ok()) return refused(bound.status().message());
    if (std::string key = problem_key(problem, c.variant->arch); key != last->key) {
      last->bytes = random_bytes(problem, /*seed=*/1);
      last->key = std::move(key);
    }
    TS_ASSIGN(const KernelTimes times, time_kernel(*c.variant, p, last->bytes));
    return times.us;
  };
}

Result<TuneReport> tune(const Plan& plan, const TuneOptions& options, TuningTable& table) {
  TuneReport report;
  const std::vector<TunedProblem> problems = problems_to_tune(plan);
  report.problems = static_cast<int64_t>(problems.size());
  const auto missing = [&](const TunedProblem& t, const Candidate& c) {
    return table.find(t.key, c.variant->name, c.config) == nullptr;
  };
  int64_t total = 0;
  for (const TunedProblem& t : problems)
    total += std::count_if(t.all.begin(), t.all.end(), [&](const Candidate& c) { return missing(t, c); });
  std::optional<Progress> progress;
  if (!options.quiet && total > 0) progress.emplace(cat("tuning ", plan.name), total);
  for (const TunedProblem& t : problems) {
    const Activity tuning("tuning", t.layers[0]);
    for (const Candidate& c : t.all) {
      if (!missing(t, c)) continue;
      const std::string name = kernel_name(c.variant->name, c.config);
      const Result<double> us = options.time(c, t.problem);
      if (us.ok()) {
        table.record(t.key, {c.variant->name, c.config, *us});
        ++report.measured;
      } else if (us.status().code() == Code::kRefused) {
        report.left_out.push_back(cat(name, " on layer ", t.layers[0], ": ", us.status().message()));
      } else {
        return us.status().at(cat("tuning layer ", t.layers[0], ", ", name));
      }
      if (progress) progress->advance();
    }
  }
  return report;
}

}  // namespace tessera
