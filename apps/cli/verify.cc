// SPDX-License-Identifier: Apache-2.0
#include "study/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/layers.h"
#include "cli/open_engine.h"
#include "cli/output.h"

namespace tessera {
namespace {

constexpr size_t kWorst = 5;  // layers that are shown where nothing strays

struct Options {
  std::string engine, inputs, plan;
  bool outputs_only = false, all = false;
  int64_t samples = 0;
  uint64_t seed = 2;  // golden values have 1: these inputs are fresh
  const CLI::App* app = nullptr;
};

struct Check {
  std::string what;  // "golden values", "seed 2", "in.npz"
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
    layers.push_back({{"layer", l.layer},
                      {"op", l.op},
                      {"variant", l.variant},
                      {"relative_l2", l.relative_l2},
                      {"bound", l.bound},
                      {"share", l.share},
                      {"cosine", l.cosine},
                      {"ok", l.ok()}});
  }
  const int stray = c.report.first_stray;
  return {{"plan", c.report.plan},
          {"what", c.what},
          {"ok", c.report.ok},
          {"sentence", c.report.sentence},
          {"machine", c.report.machine},
          {"first_stray", stray < 0 ? Json() : Json(c.report.layers[static_cast<size_t>(stray)].layer)},
          {"layers_note", c.report.layers_note},
          {"outputs", outputs},
          {"layers", layers}};
}

void print_layers(const VerifyReport& report, bool all) {
  std::vector<size_t> shown;
  for (size_t i = 0; i < report.layers.size(); ++i) shown.push_back(i);
  std::string which = "each";
  if (!all && shown.size() > kWorst) {
    std::stable_sort(shown.begin(), shown.end(),
                     [&](size_t a, size_t b) { return report.layers[a].share > report.layers[b].share; });
    shown.resize(kWorst);
    const size_t stray = static_cast<size_t>(report.first_stray);
    if (report.first_stray >= 0 && std::find(shown.begin(), shown.end(), stray) == shown.end()) shown.back() = stray;
    std::sort(shown.begin(), shown.end());
    which = cat("the ", shown.size(), " nearest to their bound (--all: each)");
  }
  Table table({">step", "layer", "variant", ">relative L2", ">bound", ">of bound", ">cosine", ""});
  for (const size_t i : shown) {
    const LayerReport& l = report.layers[i];
    const bool first = static_cast<int>(i) == report.first_stray;
    table.add({std::to_string(i + 1), l.layer, l.variant, fmt::format("{:.1e}", l.relative_l2),
               fmt::format("{:.1e}", l.bound), fmt::format("{:.2g} %", 100 * l.share), fmt::format("{:.7f}", l.cosine),
               l.ok()  ? "ok"
               : first ? "STRAYS FIRST"
                       : "STRAYS"});
  }
  fmt::print("\n{}\n{}",
             wrap(cat("plan ", report.plan, ", ", plural(static_cast<int64_t>(report.layers.size()), "layer"),
                      " against its own reference on the operands that it read; ", which),
                  0, 2),
             table.text());
}

void print(const std::vector<Check>& checks, bool all) {
  Table table({"plan", "inputs", "output", ">cosine mean", ">worst", ">relative L2", ">bound", ""});
  for (const Check& c : checks) {
    for (const OutputReport& o : c.report.outputs) {
      table.add({c.report.plan, c.what, o.name, fmt::format("{:.7f}", o.cosine_mean),
                 fmt::format("{:.7f}", o.cosine_worst), fmt::format("{:.2e}", o.relative_l2),
                 fmt::format("{:.2e}", o.bound), o.ok ? "ok" : "FAILED"});
    }
  }
  fmt::print("outputs against the golden plan (f64 on the same codes)\n{}", table.text());
  for (const Check& c : checks) {
    if (!c.report.layers_note.empty()) fmt::print("\n{}\n", wrap(c.report.layers_note, 0, 2));
    if (!c.report.layers.empty()) print_layers(c.report, all);
  }
}

// The failure that says most: a layer, else golden values that layers do not explain, else an output.
std::string failure_of(const std::vector<Check>& checks) {
  const Check* failed = nullptr;
  bool agree = false;
  for (const Check& c : checks) {
    if (c.report.first_stray >= 0) return cat("plan ", c.report.plan, ", ", c.what, ": ", c.report.sentence);
    if (!c.report.ok && failed == nullptr) failed = &c;
    agree = agree || (c.report.ok && !c.report.layers.empty());
  }
  if (failed == nullptr) return "";
  std::string text = cat("plan ", failed->report.plan, ", ", failed->what, ": ", failed->report.sentence);
  if (failed->what == "golden values" && agree) {
    text +=
        "; every layer agrees with its reference on the weights that are in the file, so they are not the weights of "
        "the build: build the engine again";
  }
  return text;
}

Status refuse_ignored(const Options& o, const Common& common) {
  if (!o.inputs.empty() && o.app->count("--seed") > 0)
    return usage_error("--seed draws inputs, --inputs brings them: give one of the two");
  if (o.all && o.outputs_only)
    return usage_error("--all shows layers, --outputs-only compares none: give one of the two");
  if (o.all && common.json) return usage_error("--json holds every layer: leave --all out");
  return {};
}

// Numbers that are not finite make every comparison fail: that is the inputs' fault, and said of them.
Status check_inputs(const Engine& engine, const Options& o) {
  const auto golden =
      std::find_if(engine.plans.begin(), engine.plans.end(), [](const Plan& p) { return p.name == "golden"; });
  if (o.inputs.empty() || golden == engine.plans.end()) return {};
  TS_ASSIGN(const Samples all, read_samples(*golden, o.inputs));
  const int64_t used = std::min(all.count, o.samples > 0 ? o.samples : golden->batch);
  const std::string not_finite = non_finite_inputs(*golden, all.part(0, used));
  return not_finite.empty() ? Status() : bad_input(cat(o.inputs, ": ", not_finite, "; verify wants finite numbers"));
}

Status verify(const Options& o, const Common& common) {
  TS_TRY(refuse_ignored(o, common));
  TS_ASSIGN(const Engine engine, open_engine(o.engine));
  TS_TRY(check_runs_here(engine));
  TS_TRY(check_inputs(engine, o));
  std::vector<Check> checks;
  for (const Plan* plan : runnable_plans(engine)) {
    if (engine.golden.outputs.empty() || (!o.plan.empty() && plan->name != o.plan)) continue;
    TS_ASSIGN(VerifyReport report, check_golden(engine, *plan));
    checks.push_back({"golden values", std::move(report)});
  }
  const VerifyOptions options{.layers = !o.outputs_only,
                              .seed = o.seed,
                              .inputs = o.inputs,
                              .samples = o.samples,
                              .plan = o.plan,
                              .quiet = common.quiet || common.json};
  TS_ASSIGN(std::vector<VerifyReport> reports, verify_plans(engine, options));
  const std::string what = o.inputs.empty() ? cat("seed ", o.seed) : o.inputs.substr(o.inputs.rfind('/') + 1);
  for (VerifyReport& r : reports) checks.push_back({what, std::move(r)});
  const std::string failure = failure_of(checks);
  if (common.json) {
    Json all = Json::array();
    for (const Check& c : checks) all.push_back(check_json(c));
    print_json({{"engine", o.engine},
                {"precision", engine.precision},
                {"ok", failure.empty()},
                {"sentence", failure},
                {"checks", all}});
    return failure.empty() ? Status() : verification_failed();
  }
  print(checks, o.all);
  if (!failure.empty()) return Status(Code::kVerifyFailed, failure);
  fmt::print("\n{}\n", wrap(cat(checks.back().report.sentence, ", on ", checks.back().report.machine), 0, 2));
  return {};
}

Runner add(CLI::App& app, const Common& common) {
  auto o = std::make_shared<Options>();
  app.add_option("engine", o->engine, "an engine file")->type_name("FILE")->required();
  app.add_option("-i,--inputs", o->inputs,
                 "npz with an array per input, named like it, [samples, ...]: verify on your own data (default: seeded "
                 "random inputs)")
      ->type_name("FILE")
      ->group("Inputs");
  app.add_option("--samples", o->samples,
                 "how many samples (default: as many as the engine has golden values for, 1 or 2); each costs an f64 "
                 "run or two")
      ->check(within(1, 1 << 20))
      ->type_name("N")
      ->group("Inputs");
  app.add_option("--seed", o->seed, "of the random inputs (default: 2; golden values have 1)")
      ->check(not_negative())
      ->type_name("N")
      ->group("Inputs");
  app.add_option("--plan", o->plan, "only this plan (default: all)")->type_name("NAME")->group("What is compared");
  app.add_flag("--outputs-only", o->outputs_only, "not layer by layer: faster, but a failure names no layer")
      ->group("What is compared");
  app.add_flag("--all", o->all, "show every layer (default: the five nearest to their bound)")
      ->group("What is compared");
  o->app = &app;
  return [o, &common] { return verify(*o, common); };
}

}  // namespace

const Command verify_command{"verify",
                             "compare an engine with its golden plan, layer by layer",
                             "Three comparisons, each with a bound that is derived from the arithmetic that the "
                             "kernels state. Golden values: the engine reproduces the outputs that "
                             "were stored at build. Outputs: fresh inputs through the engine and through its golden "
                             "plan (f64 on the same codes). Layers: each layer is run again in f64 on "
                             "the very operands that it read, so errors do not add up from layer to layer, and the "
                             "first layer that strays is named. Differences that rounding to a "
                             "layer's stored type explains do not count. On a GPU the comparison of layers runs step "
                             "by step, without the CUDA graph.",
                             "  tessera verify vit.tess\n"
                             "  tessera verify vit.tess --inputs images.npz --samples 4\n"
                             "  tessera verify vit.tess --all --seed 42\n"
                             "  tessera verify vit.tess --json | jq '.checks[].first_stray'\n",
                             "",
                             true,
                             add};

}  // namespace tessera
