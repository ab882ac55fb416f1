// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>

#include "base/log.h"
#include "base/progress.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/open_engine.h"
#include "cli/output.h"
#include "cli/plan_summary.h"
#include "inputs/samples.h"
#include "plan/choose.h"
#include "plan/engine_file.h"
#include "runtime/batches.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

constexpr size_t kSlowest = 10;  // layers that --steps shows

struct Options {
  std::string engine, plan;
  int repeats = 20;
  bool steps = false, all = false;
};

// Times of all steps of one op by one variant and tile shape in one layer.
struct StepTime {
  std::string layer, op, variant, config;
  double milliseconds = 0;
  int64_t steps = 0;
};

struct Timing {
  const Plan* plan;
  std::string machine;
  double median = 0, p10 = 0, p90 = 0, bind_s = 0;
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
  const Activity binding("plan", plan.name);
  const auto start = std::chrono::steady_clock::now();
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan));
  const double bind_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
           .bind_s = bind_s,
           .steps = {}};
  if (o.steps) {
    TS_ASSIGN(const std::vector<double> each, executor->time_steps(inputs.pointers));
    std::map<std::tuple<std::string, std::string, std::string, std::string>, std::pair<double, int64_t>> sums;
    for (size_t i = 0; i < each.size() && i < plan.steps.size(); ++i) {
      auto& [ms, steps] = sums[{plan.steps[i].layer, plan.steps[i].op, plan.steps[i].variant, plan.steps[i].config}];
      ms += each[i];
      ++steps;
    }
    for (const auto& [key, sum] : sums)
      t.steps.push_back(
          {std::get<0>(key), std::get<1>(key), std::get<2>(key), std::get<3>(key), sum.first, sum.second});
    std::stable_sort(t.steps.begin(), t.steps.end(),
                     [](const StepTime& a, const StepTime& b) { return a.milliseconds > b.milliseconds; });
  }
  return t;
}

Json timing_json(const Timing& t) {
  Json steps = Json::array();
  for (const StepTime& s : t.steps)
    steps.push_back({{"layer", s.layer},
                     {"op", s.op},
                     {"variant", s.variant},
                     {"config", s.config},
                     {"steps", s.steps},
                     {"ms", s.milliseconds}});
  return {{"plan", t.plan->name}, {"batch", t.plan->batch},       {"median_ms", t.median}, {"p10_ms", t.p10},
          {"p90_ms", t.p90},      {"per_second", t.per_second()}, {"bind_s", t.bind_s},    {"steps", steps}};
}

// Where the time goes: by kernel, then the layers that take longest.
void print_steps(const Timing& t, bool all) {
  double total = 0;
  std::map<std::string, StepTime> by_variant;
  for (const StepTime& s : t.steps) {
    total += s.milliseconds;
    StepTime& v = by_variant[kernel_name(s.variant, s.config)];
    v.variant = kernel_name(s.variant, s.config);
    v.milliseconds += s.milliseconds;
    v.steps += s.steps;
  }
  const auto share = [&](double ms) { return fmt::format("{:.1f} %", total > 0 ? ms / total * 100 : 0); };
  fmt::print("\n{}\n", wrap(fmt::format("plan {}, step by step: {:.3f} ms in all, beside {:.3f} ms of a whole run "
                                        "(steps timed one by one lose what a run "
                                        "overlaps and keeps in cache)",
                                        t.plan->name, total, t.median),
                            0, 2));
  std::vector<StepTime> sorted;
  for (const auto& [name, v] : by_variant) sorted.push_back(v);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const StepTime& a, const StepTime& b) { return a.milliseconds > b.milliseconds; });
  Table variants({"kernel", ">steps", ">ms", ">share"});
  for (const StepTime& v : sorted)
    variants.add({v.variant, std::to_string(v.steps), fmt::format("{:.3f}", v.milliseconds), share(v.milliseconds)});
  variants.add({"all", std::to_string(t.plan->steps.size()), fmt::format("{:.3f}", total), share(total)});
  const size_t shown = all ? t.steps.size() : std::min(kSlowest, t.steps.size());
  Table layers({"layer", "kernel", ">steps", ">ms", ">share"});
  for (size_t i = 0; i < shown; ++i) {
    const StepTime& s = t.steps[i];
    layers.add({s.layer, kernel_name(s.variant, s.config), std::to_string(s.steps),
                fmt::format("{:.3f}", s.milliseconds), share(s.milliseconds)});
  }
  fmt::print("{}\n{}\n{}", variants.text(),
             shown == t.steps.size() ? std::string("layers, slowest first")
                                     : fmt::format("the {} slowest of {} (--all: each)", shown,
                                                   plural(static_cast<int64_t>(t.steps.size()), "layer")),
             layers.text());
}

Status bench(const Options& o, const Common& common) {
  if (o.all && !o.steps) return usage_error("--all shows every layer of --steps: give both");
  if (o.all && common.json) return usage_error("--json holds every layer: leave --all out");
  double load_s = 0;
  TS_ASSIGN(const Engine engine, open_engine(o.engine, &load_s));
  TS_TRY(check_target(engine));
  std::vector<Timing> timings;
  std::vector<std::string> names;
  Progress progress("timing", static_cast<int64_t>(runnable_plans(engine).size()));
  for (const Plan* p : runnable_plans(engine)) {
    names.push_back(p->name);
    if (o.plan.empty() || p->name == o.plan) {
      TS_ASSIGN(Timing t, time_plan(engine, *p, o));
      timings.push_back(std::move(t));
    }
    progress.advance();
  }
  progress.done();
  if (timings.empty()) {
    std::string known;
    for (const std::string& n : names) known += (known.empty() ? "" : ", ") + n;
    return usage_error(
        cat(o.engine, ": no plan to time is called '", o.plan, "'; there are ", known, did_you_mean(o.plan, names)));
  }
  if (common.json) {
    Json plans = Json::array();
    for (const Timing& t : timings) plans.push_back(timing_json(t));
    print_json({{"engine", o.engine},
                {"model", engine.model},
                {"precision", engine.precision},
                {"machine", timings[0].machine},
                {"repeats", o.repeats},
                {"load_s", load_s},
                {"plans", plans},
                {"peak_memory_bytes", peak_memory_bytes()}});
    return {};
  }
  fmt::print("{}\n", wrap(cat(shorten(printable(engine.model), 60), " in ", engine.precision, " on ",
                              timings[0].machine, ", ", plural(o.repeats, "run"), " each"),
                          0, 2));
  Table table({"plan", ">batch", ">median ms", ">p10 ms", ">p90 ms", ">samples/s"});
  for (const Timing& t : timings) {
    table.add({t.plan->name, std::to_string(t.plan->batch), fmt::format("{:.3f}", t.median),
               fmt::format("{:.3f}", t.p10), fmt::format("{:.3f}", t.p90), fmt::format("{:.1f}", t.per_second())});
  }
  fmt::print("{}", table.text());
  fmt::print(
      "loaded in {:.3f} s, bound in {:.3f} s; at most {} of memory, the mapped file included\n", load_s,
      std::accumulate(timings.begin(), timings.end(), 0.0, [](double s, const Timing& t) { return s + t.bind_s; }),
      megabytes(peak_memory_bytes()));
  for (const Timing& t : timings) {
    if (o.steps) print_steps(t, o.all);
  }
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("engine", o->engine, "FILE", "an engine file").required = true;
  options.add("--repeats", o->repeats, "N", "timed runs after a warm-up, up to 1000000 (default: 20)").check =
      within(1, 1000000);
  options.add("--plan", o->plan, "NAME", "only this plan (default: all)");
  options.add("--steps", o->steps, "also where the time goes: by kernel and by layer, measured step by step");
  options.add("--all", o->all, "with --steps: every layer (default: the ten slowest)");
  return [o, &common] { return bench(*o, common); };
}

}  // namespace

const Command bench_command{"bench",
                            "time an engine on this machine",
                            "Runs each plan on seeded random inputs that already lie where the plan runs, after a "
                            "warm-up, and shows the median, the tenth and the ninetieth percentile of a whole run. "
                            "Nothing is compared: tessera verify does that. Also shown: the time to load the file "
                            "(mapping, checksums, checks) and to bind kernels, and the peak memory.",
                            "  tessera bench vit.tess\n"
                            "  tessera bench vit.tess --repeats 100 --threads 4 --steps\n",
                            "",
                            true,
                            add};

}  // namespace tessera
