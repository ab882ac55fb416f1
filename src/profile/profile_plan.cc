// SPDX-License-Identifier: Apache-2.0
#include "profile/profile_plan.h"

#include <memory>

#include "archs/cuda/device_memory.h"
#include "base/log.h"
#include "base/parallel.h"
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

class Profiler {
 public:
  Profiler(const Engine& engine, const Plan& plan, const ProfileOptions& options)
      : engine_(engine), plan_(plan), options_(options), inputs_(resident_inputs(plan)) {}

  Result<Profile> run() {
    Profile p = describe_plan(engine_, plan_, options_.path);
    p.runs = options_.runs;
    TS_ASSIGN(const std::unique_ptr<Executor> executor, bind_here());
    p.machine = executor->machine();
    TS_ASSIGN(std::vector<double> ms, executor->time_runs(inputs_.pointers, options_.runs, options_.warmup));
    p.latency = latency_of(std::move(ms));
    TS_ASSIGN(const auto around, time_around(*executor, plan_, inputs_.pointers, options_.device, options_.runs));
    if (around) {
      p.enqueue_us = around->enqueue_us;
      p.host_to_device_us = around->host_to_device_us;
      p.device_to_host_us = around->device_to_host_us;
    }
    if (!around || !take_activities(p)) TS_TRY(take_stamps(*executor, p));
    return p;
  }

 private:
  Result<std::unique_ptr<Executor>> bind_here() {
    return bind(engine_, plan_, {.threads = options_.threads, .device = options_.device});
  }

  // Inside the CUDA graph, which is made anew: CUPTI times those that are made while it records. False, with a note:
  // it cannot be had.
  bool take_activities(Profile& p) {
    std::vector<int> launches;
    std::vector<double> ms;
    const Result<CuptiTrace> trace = trace_with_cupti([&]() -> Status {
      TS_ASSIGN(const std::unique_ptr<Executor> traced, bind_here());
      launches = traced->launches();
      TS_ASSIGN(ms, traced->time_runs(inputs_.pointers, options_.runs, options_.warmup));
      return {};
    });
    const Result<std::vector<RunTrace>> runs = !trace.ok() ? Result<std::vector<RunTrace>>(trace.status())
                                               : launches.empty()
                                                   ? machine_error("the nodes of the CUDA graph could not be counted")
                                                   : match_activities(trace->activities, launches, options_.runs);
    if (!runs.ok()) {
      const std::string lost =
          trace.ok() && trace->untimed + trace->dropped > 0
              ? cat(" (", trace->untimed, " activities had no times, ", trace->dropped, " were dropped)")
              : "";
      p.notes.push_back(cat("kernels were timed with events between the steps, outside the CUDA graph: ",
                            runs.status().message(), lost, "; gaps and overlap are not known"));
      return false;
    }
    p.profiled_ms = median_of(std::move(ms));
    take_times(*runs, p);
    return true;
  }

  // Between the steps of runs on the host, or of runs on the GPU without the graph.
  Status take_stamps(Executor& executor, Profile& p) {
    TS_ASSIGN(const std::vector<StepTimes> runs, executor.time_steps(inputs_.pointers, options_.runs, options_.warmup));
    std::vector<RunTrace> traces;
    std::vector<double> ms;
    for (const StepTimes& r : runs) {
      traces.push_back(trace_of(r));
      ms.push_back(r.run_us * 1e-3);
    }
    p.profiled_ms = median_of(std::move(ms));
    take_times(traces, p);
    if (info(plan_.arch).device == DeviceKind::kCuda) p.gap_us = {}, p.overlap_us = {}, p.span_us = {};
    return {};
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
