// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "cli/open_engine.h"
#include "cli/output.h"
#include "cli/policy_actions.h"
#include "cli/verify_tables.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"
#include "policy/policy.h"
#include "runtime/batches.h"
#include "verify/verify_json.h"

namespace tessera {
namespace {

constexpr uint64_t kFreshSeed = 2;  // golden values have 1

// A plan of a graph: of several there is one for each bucket of lengths.
struct OfPlan {
  std::string graph, plan, sentence;
  bool ok = true;
  std::vector<VerifyCheck> checks;
};

Result<OfPlan> verify_one(const Engine& engine, const Plan& plan, bool quiet) {
  OfPlan g{.graph = plan.graph, .plan = plan.name, .sentence = {}, .ok = true, .checks = {}};
  if (has_golden_values(engine, plan)) {
    TS_ASSIGN(VerifyReport golden, check_golden(engine, plan));
    g.checks.push_back({"golden values", std::move(golden)});
  }
  TS_ASSIGN(std::vector<VerifyReport> fresh,
            verify_plans(engine, {.seed = kFreshSeed, .plan = plan.name, .quiet = quiet}));
  for (VerifyReport& r : fresh) g.checks.push_back({cat("normal, seed ", kFreshSeed), std::move(r)});
  const std::string failure = failure_of(g.checks);
  g.ok = failure.empty();
  g.sentence = g.ok ? g.checks.back().report.sentence : failure;
  return g;
}

}  // namespace

Status policy_verify(const PolicyOptions& o, const Common& common) {
  if (o.engine.empty()) return usage_error("policy verify wants an engine: tessera policy verify pi05.tess");
  TS_ASSIGN(const Engine engine, open_engine(o.engine));
  TS_TRY(check_constants(engine).at(o.engine));
  TS_TRY(check_target(engine));
  if (const auto policy = Policy::make(engine); !policy.ok()) return policy.status().at(o.engine);
  if (engine.golden.forms.empty()) warn(kNoGoldenValues);
  std::vector<OfPlan> graphs;
  for (const Plan* plan : runnable_plans(engine)) {
    TS_ASSIGN(OfPlan g, verify_one(engine, *plan, common.quiet || common.json));
    graphs.push_back(std::move(g));
  }
  const bool ok = std::all_of(graphs.begin(), graphs.end(), [](const OfPlan& g) { return g.ok; });
  if (common.json) {
    Json all = Json::array();
    for (const OfPlan& g : graphs) {
      Json checks = Json::array();
      for (const VerifyCheck& c : g.checks) checks.push_back(check_json(c));
      all.push_back({{"graph", g.graph}, {"plan", g.plan}, {"ok", g.ok}, {"sentence", g.sentence}, {"checks", checks}});
    }
    print_json({{"engine", o.engine}, {"precision", engine.precision}, {"ok", ok}, {"graphs", all}});
    return ok ? Status() : verification_failed();
  }
  std::vector<VerifyCheck> checks;
  for (const OfPlan& g : graphs) checks.insert(checks.end(), g.checks.begin(), g.checks.end());
  print_checks(checks, o.all);
  fmt::print("\n");
  const auto several = [&](const std::string& graph) { return runnable_plans(engine, graph).size() > 1; };
  for (const OfPlan& g : graphs)
    fmt::print(
        "{}\n",
        wrap(printable(cat(several(g.graph) ? g.plan : g.graph, ": ", g.ok ? "" : "FAILED: ", g.sentence)), 0, 2));
  return ok ? Status() : Status(Code::kVerifyFailed, "not every graph computes what it must");
}

}  // namespace tessera
