// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "base/log.h"
#include "base/progress.h"
#include "base/words/nearest_word.h"
#include "cli/command.h"
#include "cli/open_engine.h"
#include "cli/output.h"
#include "plan/engine_file.h"
#include "profile/device_times.h"
#include "profile/profile_plan.h"
#include "runtime/batches.h"
#include "runtime/executor.h"
#include "traces/profile.h"

namespace tessera {
namespace {

struct Options {
  std::string engine, plan;
  int repeats = 20, warmup = kOwnWarmup;
};

struct Timing {
  const Plan* plan;
  std::string machine;
  Latency latency;
  double p10 = 0, bind_s = 0;
  std::optional<double> enqueue_us;
  double per_second() const {
    return latency.median_ms > 0 ? static_cast<double>(plan->batch) / latency.median_ms * 1e3 : 0;
  }
};

Result<Timing> time_plan(const Engine& engine, const Plan& plan, const Options& o) {
  const Activity binding("plan", plan.name);
  const auto start = std::chrono::steady_clock::now();
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan));
  const double bind_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Filled inputs = resident_inputs(plan);
  TS_ASSIGN(std::vector<double> times, executor->time_runs(inputs.pointers, o.repeats, o.warmup));
  if (times.empty()) return machine_error("the executor measured nothing");
  TS_ASSIGN(const auto around, time_around(*executor, plan, inputs.pointers, /*device=*/0, o.repeats));
  std::sort(times.begin(), times.end());
  Timing t{.plan = &plan,
           .machine = executor->machine(),
           .latency = latency_of(times),
           .p10 = percentile(times, 0.1),
           .bind_s = bind_s,
           .enqueue_us = {}};
  if (around) t.enqueue_us = around->enqueue_us;
  return t;
}

Json timing_json(const Timing& t) {
  const Latency& l = t.latency;
  Json j = {{"plan", t.plan->name},     {"batch", t.plan->batch}, {"mean_ms", l.mean_ms},
            {"median_ms", l.median_ms}, {"p10_ms", t.p10},        {"p90_ms", l.p90_ms},
            {"p95_ms", l.p95_ms},       {"p99_ms", l.p99_ms},     {"per_second", t.per_second()},
            {"bind_s", t.bind_s}};
  if (t.enqueue_us) j["enqueue_us"] = *t.enqueue_us;
  return j;
}

void print_timings(const std::vector<Timing>& timings) {
  const bool enqueues = timings[0].enqueue_us.has_value();
  std::vector<std::string> titles = {"plan",    ">batch",  ">mean ms", ">median ms", ">p10 ms",
                                     ">p90 ms", ">p95 ms", ">p99 ms",  ">samples/s"};
  if (enqueues) titles.push_back(">enqueue us");
  Table table(titles);
  const auto ms = [](double v) { return fmt::format("{:.3f}", v); };
  for (const Timing& t : timings) {
    const Latency& l = t.latency;
    std::vector<std::string> row = {t.plan->name,
                                    std::to_string(t.plan->batch),
                                    ms(l.mean_ms),
                                    ms(l.median_ms),
                                    ms(t.p10),
                                    ms(l.p90_ms),
                                    ms(l.p95_ms),
                                    ms(l.p99_ms),
                                    fmt::format("{:.1f}", t.per_second())};
    if (enqueues) row.push_back(fmt::format("{:.1f}", t.enqueue_us.value_or(0)));
    table.add(std::move(row));
  }
  fmt::print("{}", table.text());
}

Status bench(const Options& o, const Common& common) {
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
                {"warmup", o.warmup == kOwnWarmup ? Json(nullptr) : Json(o.warmup)},
                {"load_s", load_s},
                {"plans", plans},
                {"peak_memory_bytes", peak_memory_bytes()}});
    return {};
  }
  fmt::print("{}\n", wrap(cat(shorten(printable(engine.model), 60), " in ", engine.precision, " on ",
                              timings[0].machine, ", ", plural(o.repeats, "run"), " each"),
                          0, 2));
  print_timings(timings);
  fmt::print(
      "loaded in {:.3f} s, bound in {:.3f} s; at most {} of memory, the mapped file included\n", load_s,
      std::accumulate(timings.begin(), timings.end(), 0.0, [](double s, const Timing& t) { return s + t.bind_s; }),
      megabytes(peak_memory_bytes()));
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("engine", o->engine, "FILE", "an engine file").required = true;
  options.add("--repeats", o->repeats, "N", "timed runs, up to 1000000 (default: 20)").check = within(1, 1000000);
  options
      .add("--warmup", o->warmup, "N",
           "runs before the first that counts, up to 1000000 (default: 1 on a CPU, 20 on a GPU)")
      .check = within(0, 1000000);
  options.add("--plan", o->plan, "NAME", "only this plan (default: all)");
  return [o, &common] { return bench(*o, common); };
}

}  // namespace

const Command bench_command{
    "bench",
    "time an engine on this machine",
    "Runs each plan on seeded random inputs that already lie where the plan runs, after a "
    "warm-up, and shows the mean, the median and percentiles of a whole run, samples per second "
    "by the median and, on a GPU, the host time to enqueue a run. Nothing is compared: tessera "
    "verify does that; tessera profile shows where the time goes. Also shown: the time to load "
    "the file (mapping, checksums, checks) and to bind kernels, and the peak memory.",
    "  tessera bench vit.tess\n"
    "  tessera bench vit.tess --repeats 100 --warmup 10 --threads 4\n",
    "",
    true,
    add};

}  // namespace tessera
