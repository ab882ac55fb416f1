// SPDX-License-Identifier: Apache-2.0
#include "study/verify.h"

#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/layers.h"
#include "cli/output.h"
#include "plan/engine_file.h"

namespace tessera {
namespace {

struct Options {
  std::string engine;
  bool layers = false;
  uint64_t seed = 2;  // golden values have 1: these inputs are fresh
};

struct Check {
  std::string plan, what;  // "golden values", "seed 1"
  VerifyReport report;
};

Json check_json(const Check& c) {
  Json outputs = Json::array(), layers = Json::array();
  for (const OutputReport& o : c.report.outputs) {
    outputs.push_back({{"name", o.name},
                       {"cosine_mean", o.cosine_mean},
                       {"cosine_worst", o.cosine_worst},
                       {"relative_l2", o.relative_l2},
                       {"bound", o.bound},
                       {"ok", o.ok}});
  }
  for (const LayerReport& l : c.report.layers) {
    layers.push_back(
        {{"layer", l.layer}, {"op", l.op}, {"relative_l2", l.relative_l2}, {"bound", l.bound}, {"cosine", l.cosine}});
  }
  return {{"plan", c.plan},
          {"what", c.what},
          {"ok", c.report.ok},
          {"sentence", c.report.sentence},
          {"machine", c.report.machine},
          {"outputs", outputs},
          {"layers", layers}};
}

void print(const std::vector<Check>& checks) {
  Table table({"plan", "inputs", "output", ">cosine mean", ">worst", ">relative L2", ">bound", ""});
  for (const Check& c : checks) {
    for (const OutputReport& o : c.report.outputs) {
      table.add({c.plan, c.what, o.name, fmt::format("{:.7f}", o.cosine_mean), fmt::format("{:.7f}", o.cosine_worst),
                 fmt::format("{:.2e}", o.relative_l2), fmt::format("{:.2e}", o.bound), o.ok ? "ok" : "FAILED"});
    }
  }
  fmt::print("{}", table.text());
  for (const Check& c : checks) {
    if (c.report.layers.empty()) continue;
    Table layers({"layer", "op", ">relative L2", ">bound", ">cosine", ""});
    for (const LayerReport& l : c.report.layers) {
      layers.add({l.layer, l.op, fmt::format("{:.2e}", l.relative_l2), fmt::format("{:.2e}", l.bound),
                  fmt::format("{:.7f}", l.cosine), l.relative_l2 <= l.bound ? "ok" : "FAILED"});
    }
    fmt::print("\nlayers of plan {}\n{}", c.plan, layers.text());
  }
}

Status verify(const Options& o, const Common& common) {
  TS_ASSIGN(const Engine engine, read_engine(o.engine));
  std::vector<Check> checks;
  for (size_t i = 0; i < engine.plans.size(); ++i) {
    const Plan& plan = engine.plans[i];
    if (plan.name == "golden") continue;
    if (!engine.golden.outputs.empty()) {
      TS_ASSIGN(VerifyReport report, check_golden(engine, plan));
      checks.push_back({plan.name, "golden values", std::move(report)});
    }
    TS_ASSIGN(VerifyReport report, verify_engine(engine, {.layers = o.layers, .seed = o.seed, .plan = i}));
    checks.push_back({plan.name, cat("seed ", o.seed), std::move(report)});
  }
  const Check* failed = nullptr;
  for (const Check& c : checks) {
    if (!c.report.ok && failed == nullptr) failed = &c;
  }
  if (common.json) {
    Json all = Json::array();
    for (const Check& c : checks) all.push_back(check_json(c));
    print_json({{"engine", o.engine}, {"precision", engine.precision}, {"ok", failed == nullptr}, {"checks", all}});
    return failed == nullptr ? Status() : verification_failed();
  }
  print(checks);
  if (failed != nullptr)
    return Status(Code::kVerifyFailed, cat("plan ", failed->plan, ", ", failed->what, ": ", failed->report.sentence));
  if (!checks.empty()) fmt::print("\n{} on {}\n", checks.front().report.sentence, checks.front().report.machine);
  return {};
}

Runner add(CLI::App& app, const Common& common) {
  auto o = std::make_shared<Options>();
  app.add_option("engine", o->engine, "an engine file")->type_name("FILE")->required();
  app.add_flag("--layers", o->layers, "compare layer by layer (plans that run on the host)");
  app.add_option("--seed", o->seed, "of the fresh inputs (default: 2)")->type_name("N");
  return [o, &common] { return verify(*o, common); };
}

}  // namespace

const Command verify_command{"verify", "compare an engine with its golden plan (f64 on the same codes)",
                             "  tessera verify vit.tess\n"
                             "  tessera verify vit.tess --layers --seed 42\n",
                             true, add};

}  // namespace tessera
