// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/layers.h"
#include "cli/output.h"
#include "plan/engine_file.h"
#include "runtime/executor.h"
#include "study/samples.h"

namespace tessera {
namespace {

struct Options {
  std::string engine, plan;
  int repeats = 20;
  bool steps = false;
};

// Times of all steps of one op by one variant in one layer.
struct StepTime {
  std::string layer, op, variant;
  double milliseconds = 0;
};

struct Timing {
  const Plan* plan;
  std::string machine;
  double median = 0, p10 = 0, p90 = 0;
  std::vector<StepTime> steps;
  double per_second() const { return median > 0 ? static_cast<double>(plan->batch) / median * 1e3 : 0; }
};

// Linear between neighbours; `sorted` is not empty.
double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

Result<Timing> time_plan(const Engine& engine, const Plan& plan, const Options& o) {
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan));
  const Samples samples = random_samples(plan, plan.batch, /*seed=*/1);
  const Filled inputs = fill_inputs(plan, samples, 0);
  TS_ASSIGN(std::vector<double> times, executor->time_runs(inputs.pointers, o.repeats));
  if (times.empty()) return machine_error("the executor measured nothing");
  std::sort(times.begin(), times.end());
  Timing t{.plan = &plan,
           .machine = executor->machine(),
           .median = percentile(times, 0.5),
           .p10 = percentile(times, 0.1),
           .p90 = percentile(times, 0.9),
           .steps = {}};
  if (o.steps) {
    TS_ASSIGN(const std::vector<double> each, executor->time_steps(inputs.pointers));
    std::map<std::tuple<std::string, std::string, std::string>, double> sums;
    for (size_t i = 0; i < each.size() && i < plan.steps.size(); ++i)
      sums[{plan.steps[i].layer, plan.steps[i].op, plan.steps[i].variant}] += each[i];
    for (const auto& [key, ms] : sums) t.steps.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), ms});
    std::stable_sort(t.steps.begin(), t.steps.end(),
                     [](const StepTime& a, const StepTime& b) { return a.milliseconds > b.milliseconds; });
  }
  return t;
}

Json timing_json(const Timing& t) {
  Json steps = Json::array();
  for (const StepTime& s : t.steps)
    steps.push_back({{"layer", s.layer}, {"op", s.op}, {"variant", s.variant}, {"ms", s.milliseconds}});
  return {{"plan", t.plan->name}, {"batch", t.plan->batch},       {"median_ms", t.median}, {"p10_ms", t.p10},
          {"p90_ms", t.p90},      {"per_second", t.per_second()}, {"steps", steps}};
}

void print_steps(const Timing& t) {
  double total = 0;
  std::map<std::string, double> by_variant;
  for (const StepTime& s : t.steps) {
    total += s.milliseconds;
    by_variant[s.variant] += s.milliseconds;
  }
  const auto share = [&](double ms) { return fmt::format("{:.1f} %", total > 0 ? ms / total * 100 : 0); };
  Table layers({"layer", "op", "variant", ">ms", ">share"});
  for (const StepTime& s : t.steps)
    layers.add({s.layer, s.op, s.variant, fmt::format("{:.3f}", s.milliseconds), share(s.milliseconds)});
  fmt::print("\nplan {}, step by step: {:.3f} ms in all\n{}", t.plan->name, total, layers.text());
  std::vector<std::pair<std::string, double>> sorted(by_variant.begin(), by_variant.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  Table variants({"variant", ">ms", ">share"});
  for (const auto& [variant, ms] : sorted) variants.add({variant, fmt::format("{:.3f}", ms), share(ms)});
  fmt::print("\n{}", variants.text());
}

Status bench(const Options& o, const Common& common) {
  TS_ASSIGN(const Engine engine, read_engine(o.engine));
  std::vector<Timing> timings;
  for (const Plan* p : runnable_plans(engine)) {
    if (!o.plan.empty() && p->name != o.plan) continue;
    TS_ASSIGN(Timing t, time_plan(engine, *p, o));
    timings.push_back(std::move(t));
  }
  if (timings.empty()) return usage_error(cat(o.engine, ": no plan to time is called '", o.plan, "'"));
  if (common.json) {
    Json plans = Json::array();
    for (const Timing& t : timings) plans.push_back(timing_json(t));
    print_json({{"engine", o.engine},
                {"model", engine.model},
                {"precision", engine.precision},
                {"machine", timings[0].machine},
                {"repeats", o.repeats},
                {"plans", plans}});
    return {};
  }
  fmt::print("{} in {} on {}, {} each\n", printable(engine.model), engine.precision, timings[0].machine,
             plural(o.repeats, "run"));
  Table table({"plan", ">batch", ">median ms", ">p10 ms", ">p90 ms", ">samples/s"});
  for (const Timing& t : timings) {
    table.add({t.plan->name, std::to_string(t.plan->batch), fmt::format("{:.3f}", t.median),
               fmt::format("{:.3f}", t.p10), fmt::format("{:.3f}", t.p90), fmt::format("{:.1f}", t.per_second())});
  }
  fmt::print("{}", table.text());
  for (const Timing& t : timings) {
    if (o.steps) print_steps(t);
  }
  return {};
}

Runner add(CLI::App& app, const Common& common) {
  auto o = std::make_shared<Options>();
  app.add_option("engine", o->engine, "an engine file")->type_name("FILE")->required();
  app.add_option("--repeats", o->repeats, "timed runs after a warm-up (default: 20)")
      ->check(within(1, 1000000))
      ->type_name("N");
  app.add_option("--plan", o->plan, "only this plan")->type_name("NAME");
  app.add_flag("--steps", o->steps, "also the time of each layer and variant, measured step by step");
  return [o, &common] { return bench(*o, common); };
}

}  // namespace

const Command bench_command{"bench", "time an engine on this machine",
                            "  tessera bench vit.tess\n"
                            "  tessera bench vit.tess --repeats 100 --threads 4 --steps\n",
                            true, add};

}  // namespace tessera
