// SPDX-License-Identifier: Apache-2.0
#include "profile/profile_plan.h"

#include <memory>

#include "archs/cuda/device_memory.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "inputs/samples.h"
#include "profile/ceilings.h"
#include "profile/cupti.h"
#include "profile/describe.h"
#include "profile/device_times.h"
#include "profile/timeline.h"
#include "runtime/batches.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

constexpr double kOverlapWorthSaying = 0.01;  // of the span

class Profiler {
 public:
  Profiler(const Engine& engine, const Plan& plan, const ProfileOptions& options)
      : engine_(engine), plan_(plan), options_(options), inputs_(resident_inputs(plan)) {}

  Result<Profile> run() {
    Profile p = describe_plan(engine_, plan_, options_.path);
    p.runs = options_.runs;
    TS_ASSIGN(const std::unique_ptr<Executor> executor, bind_here());
    p.machine = executor->machine();
    if (info(plan_.arch).device == DeviceKind::kHost) {
      TS_TRY(run_on_host(*executor, p));
    } else {
      TS_TRY(run_on_device(*executor, p));
    }
    return p;
  }

 private:
  Result<std::unique_ptr<Executor>> bind_here() {
    return bind(engine_, plan_, {.threads = options_.threads, .device = options_.device});
  }

  // Plain runs and runs with stamps in pairs, either one first in turn: what else the machine does disturbs both alike,
  // and what stamps cost is the median over the pairs.
  Status run_on_host(Executor& executor, Profile& p) {
    std::vector<double> ms, cost, rest;
    std::vector<StepTimes> stamped;
    Progress progress("profiling", options_.runs);
    for (int i = 0; i < options_.runs; ++i, progress.advance()) {
      for (const bool plain : {i % 2 == 0, i % 2 != 0}) {
        const int warmup = i == 0 ? options_.warmup : 0;
        if (plain) {
          TS_ASSIGN(const std::vector<double> one, executor.time_runs(inputs_.pointers, 1, warmup));
          ms.push_back(one.at(0));
        } else {
          TS_ASSIGN(std::vector<StepTimes> one, executor.time_steps(inputs_.pointers, 1, warmup));
          stamped.push_back(std::move(one.at(0)));
        }
      }
      cost.push_back(stamped.back().run_us * 1e-3 / ms.back());
    }
    progress.done();
    p.latency = latency_of(std::move(ms));
    p.profiled_ms = p.latency->median_ms * median_of(std::move(cost));
    take_stamps(stamped, p);
    for (const StepTimes& run : stamped) rest.push_back(run.run_us - coverage_of(trace_of(run)).span_us);
    p.residual_us = median_of(std::move(rest));
    return {};
  }

  Status run_on_device(Executor& executor, Profile& p) {
    TS_ASSIGN(std::vector<double> ms, executor.time_runs(inputs_.pointers, options_.runs, options_.warmup));
    p.latency = latency_of(std::move(ms));
    TS_ASSIGN(const auto around, time_around(executor, plan_, inputs_.pointers, options_.device, options_.runs));
    if (around) {
      p.enqueue_us = around->enqueue_us;
      p.copies_in_latency = false;
      p.host_to_device_us = around->host_to_device_us;
      p.device_to_host_us = around->device_to_host_us;
    }
    const Status traced = take_activities(p);
    if (traced.ok()) return {};
    p.notes.push_back(cat("kernels were timed with events between the steps, outside the CUDA graph: ",
                          traced.message(), "; gaps and overlap are not known"));
    TS_ASSIGN(const std::vector<StepTimes> stamped,
              executor.time_steps(inputs_.pointers, options_.runs, options_.warmup));
    std::vector<double> stamped_ms;
    for (const StepTimes& run : stamped) stamped_ms.push_back(run.run_us * 1e-3);
    p.profiled_ms = median_of(std::move(stamped_ms));
    take_stamps(stamped, p);
    p.gap_us = {}, p.overlap_us = {}, p.early_us = {}, p.span_us = {};
    return {};
  }

  // Inside the CUDA graph, which is made anew: CUPTI times those that are made while it records.
  Status take_activities(Profile& p) {
    const OnDevice here(options_.device);
    TS_TRY(here.status());
    std::unique_ptr<Executor> traced;  // outlives the trace: its graph is there until every record is
    std::vector<double> ms;
    TS_ASSIGN(CuptiTrace trace, trace_with_cupti([&]() -> Status {
                TS_ASSIGN(traced, bind_here());
                TS_ASSIGN(ms, traced->time_runs(inputs_.pointers, options_.runs, options_.warmup));
                return {};
              }));
    const std::vector<int> launches = traced->launches();
    if (launches.empty()) return machine_error("the nodes of the CUDA graph could not be counted");
    const Result<std::vector<RunTrace>> runs = match_activities(std::move(trace.activities), launches, options_.runs);
    if (!runs.ok()) {
      return machine_error(cat(runs.status().message(), " (", trace.untimed, " activities had no times, ",
                               trace.dropped, " were dropped)"));
    }
    p.profiled_ms = median_of(std::move(ms));
    take_times(*runs, p);
    p.residual_us = p.latency->median_ms * 1e3 - *p.span_us;
    if (*p.early_us > kOverlapWorthSaying * *p.span_us) {
      p.notes.push_back(
          "kernels that are launched programmatically begin while the one before still runs, load ahead and wait for "
          "it; a kernel's time counts from the end of the one before, so rates may exceed what it reaches alone");
    }
    return {};
  }

  static void take_stamps(const std::vector<StepTimes>& runs, Profile& p) {
    std::vector<RunTrace> traces;
    for (const StepTimes& r : runs) traces.push_back(trace_of(r));
    take_times(traces, p);
  }

  const Engine& engine_;
  const Plan& plan_;
  const ProfileOptions& options_;
  const Filled inputs_;
};

Status take_ceilings(const Plan& plan, const ProfileOptions& options, Profile& p) {
  if (options.ceilings == CeilingsUse::kNone || plan.arch == Arch::ref) return {};
  const OnDevice here(info(plan.arch).device == DeviceKind::kCuda ? options.device : 0);
  const std::shared_ptr<ThreadPool> pool = options.threads > 0 ? make_pool(options.threads) : nullptr;
  const UsePool use(pool.get());
  TS_ASSIGN(p.ceilings, machine_ceilings(plan.arch, p.machine, options.ceilings == CeilingsUse::kAgain, p.notes));
  TS_ASSIGN(p.ceilings, correct_ceilings(plan.arch, *p.ceilings, p.kernels, p.notes));
  return {};
}

}  // namespace

Result<const Plan*> pick_plan(const Engine& engine, const std::string& name) {
  const std::vector<const Plan*> plans = runnable_plans(engine);
  if (plans.empty()) return bad_input("the engine has no plan to run");
  if (name.empty()) return plans[0];
  std::string known;
  for (const Plan* p : plans) {
    if (p->name == name) return p;
    known += cat(known.empty() ? "" : ", ", p->name);
  }
  return usage_error(cat("no plan is called '", name, "'; there are ", known));
}

Filled resident_inputs(const Plan& plan) {
  Filled inputs = fill_inputs(plan, random_samples(plan, plan.batch, /*seed=*/1), 0);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (is_state(plan, plan.inputs[i])) inputs.pointers[i] = nullptr;
  }
  return inputs;
}

Result<Profile> profile_plan(const Engine& engine, const Plan& plan, const ProfileOptions& options) {
  const Activity profiling("plan", plan.name);
  TS_ASSIGN(Profile p, Profiler(engine, plan, options).run());
  TS_TRY(take_ceilings(plan, options, p));
  return p;
}

}  // namespace tessera
