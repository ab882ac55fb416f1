// SPDX-License-Identifier: Apache-2.0
#include "cli/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/output.h"
#include "plan/choose.h"
#include "tune/tune.h"

namespace tessera {
namespace {

// What the plan runs a problem with: that of its first layer.
const PlanStep* step_of(const Plan& plan, const TunedProblem& t) {
  for (const PlanStep& s : plan.steps) {
    if (s.layer == t.layers[0] && s.op == t.problem.op) return &s;
  }
  return nullptr;
}

struct Row {
  std::string variant, config;
  std::optional<double> us, in_plan_us;
  bool chosen = false;
  bool known = true;  // this program has such a kernel for the problem
};

// Fastest first, then whoever was not measured.
std::vector<Row> rows_of(const Plan& plan, const TunedProblem& t, const TuningTable* table) {
  const PlanStep* step = step_of(plan, t);
  const auto chosen = [&](const std::string& variant, const std::string& config) {
    return step != nullptr && step->variant == variant && step->config == config;
  };
  std::vector<Row> rows;
  const std::vector<TunedTime>* times = table == nullptr ? nullptr : table->find(t.key);
  if (times != nullptr) {
    for (const TunedTime& time : *times) {
      rows.push_back({time.variant, time.config, time.us,
                      time.in_plan_us > 0 ? std::optional(time.in_plan_us) : std::nullopt,
                      chosen(time.variant, time.config), find_candidate(t.all, time) != nullptr});
    }
  }
  for (const Candidate& c : t.all) {
    if (table != nullptr && table->find(t.key, c.variant->name, c.config) != nullptr) continue;
    rows.push_back({c.variant->name, c.config, std::nullopt, std::nullopt, chosen(c.variant->name, c.config)});
  }
  return rows;
}

}  // namespace

std::string table_sentence(const Plan& plan, const TuningTable* table) {
  if (table == nullptr)
    return cat("no tuning table for ", info(plan.arch).name, " comes with the program; --table names one");
  const std::string hash = tuning_hash(*table);
  const std::string by =
      plan.tuning.empty()
          ? "the plan was made without measured times, by the order of the lists and by tile shapes' cost models"
      : plan.tuning == hash ? "the plan was tuned by it"
                            : cat("the plan was tuned by another, ", shorten(printable(plan.tuning), 40));
  const std::vector<TunedProblem> problems = problems_to_tune(plan);
  const auto measured = std::count_if(problems.begin(), problems.end(),
                                      [&](const TunedProblem& t) { return table->find(t.key) != nullptr; });
  return cat("plan ", printable(plan.name), ": tuning table ", hash, " of ", printable(table->gpu), ": ", by, "; ",
             measured, " of ", plural(static_cast<int64_t>(problems.size()), "problem"), " with a choice measured");
}

Status show_tuning(const Plan& plan, const TuningTable* table, bool json) {
  if (info(plan.arch).device != DeviceKind::kCuda)
    return usage_error(cat("--tuning: plan ", plan.name, " is of ", info(plan.arch).name,
                           ", whose kernels are chosen by their order"));
  const std::vector<TunedProblem> problems = problems_to_tune(plan);
  Json all = Json::array();
  if (!json) fmt::print("{}\n", wrap(table_sentence(plan, table), 0, 2));
  for (const TunedProblem& t : problems) {
    Json candidates = Json::array();
    Table rows({"kernel", "tile", ">us", ">in the plan", ""});
    for (const Row& r : rows_of(plan, t, table)) {
      candidates.push_back({{"variant", r.variant},
                            {"config", r.config},
                            {"us", r.us ? Json(*r.us) : Json()},
                            {"in_plan_us", r.in_plan_us ? Json(*r.in_plan_us) : Json()},
                            {"chosen", r.chosen},
                            {"known", r.known}});
      rows.add({printable(r.variant), r.config.empty() ? "-" : printable(r.config),
                r.us ? fmt::format("{:.2f}", *r.us) : "not measured",
                r.in_plan_us ? fmt::format("{:.2f}", *r.in_plan_us) : "-",
                r.chosen  ? "chosen"
                : r.known ? ""
                          : "no kernel here"});
    }
    if (json) {
      all.push_back({{"problem", t.key}, {"layers", t.layers}, {"candidates", candidates}});
      continue;
    }
    const std::string layers =
        t.layers.size() == 1 ? t.layers[0] : cat(t.layers[0], " and ", t.layers.size() - 1, " more");
    fmt::print("\n{}\n{}\n{}", wrap(printable(layers), 0, 2), wrap(printable(t.key), 2, 4), rows.text());
  }
  if (json) {
    print_json({{"plan", plan.name},
                {"tuned_by", plan.tuning},
                {"table", table == nullptr ? Json() : Json(tuning_hash(*table))},
                {"gpu", table == nullptr ? Json() : Json(table->gpu)},
                {"problems", all}});
  } else if (problems.empty()) {
    fmt::print("every problem of plan {} has one candidate: there is nothing to choose\n", printable(plan.name));
  }
  return {};
}

std::string words_of_slower(const Plan& plan, const PlanStep& step, const Refusal& refusal, const TuningTable* table) {
  if (refusal.reason != kSlowerAsMeasured || table == nullptr || plan.tuning != tuning_hash(*table)) return "";
  const std::string key = problem_key(problem_of(plan, step), plan.arch);
  const TunedTime* best = table->find(key, step.variant, step.config);
  const std::vector<TunedTime>* times = table->find(key);
  if (best == nullptr || times == nullptr) return "";
  for (const TunedTime& t : *times) {
    if (kernel_name(t.variant, t.config) == refusal.variant)
      return t.in_plan_us > 0 && best->in_plan_us > 0
                 ? fmt::format("slower: {:.1f} us against {:.1f} in the plan", t.in_plan_us, best->in_plan_us)
                 : fmt::format("slower: {:.1f} us against {:.1f}", t.us, best->us);
  }
  return "";
}

}  // namespace tessera
