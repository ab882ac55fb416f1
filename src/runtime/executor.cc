// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include "archs/cuda/device_memory.h"
#include "ops/ops.h"
#include "runtime/executors.h"

namespace tessera {

std::string why_not_here(Arch arch, int device) {
  if (info(arch).device == DeviceKind::kHost) return "";
  return why_no_device(arch, device);
}

Status check_runs_here(const Engine& engine, int device) {
  const std::string why = why_not_here(engine.target, device);
  if (why.empty()) return {};
  return machine_error(cat("the engine is for ", info(engine.target).name, ", which cannot run here: ", why));
}

Status busy(bool own_state) {
  return machine_error(own_state ? "this executor is running in another thread; make one executor per thread, they "
                                   "share the weights"
                                 : "the state of this executor is in use in another thread; make one executor and one "
                                   "state per thread, they share the weights");
}

Status check_arena(const Plan& plan, const ExecutorOptions& options) {
  if (options.arena_bytes < plan.arena_bytes)
    return bad_input(cat("plan '", plan.name, "' needs an arena of ", plan.arena_bytes, " bytes, and ",
                         options.arena_bytes, " were given"));
  if (reinterpret_cast<uintptr_t>(options.arena) % kArenaAlignment != 0)
    return bad_input(cat("the arena that was given for plan '", plan.name, "' begins at no multiple of ",
                         kArenaAlignment, " bytes"));
  return {};
}

namespace {

// A kernel that was renamed or removed since the engine was built is not replaced by another: the engine says which.
Status check_variants(const Engine& engine, const Plan& plan) {
  for (const PlanStep& step : plan.steps) {
    if (find_variant(step.variant) != nullptr) continue;
    return bad_input(cat("layer ", step.layer, " wants kernel '", step.variant, "', which this program (tessera ",
                         TS_VERSION, ") does not have; the engine was written by ",
                         engine.producer.empty() ? "another" : engine.producer,
                         ": build it again with this program (tessera build)"));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Executor>> bind(const Engine& engine, const Plan& plan, const ExecutorOptions& options) {
  if (const std::string why = why_not_here(plan.arch, options.device); !why.empty()) {
    return machine_error(
        cat("the plan is for ", info(plan.arch).name, " (", info(plan.arch).what, "), which cannot run here: ", why));
  }
  TS_TRY(check_variants(engine, plan));
  if (info(plan.arch).device == DeviceKind::kHost) return bind_host(engine, plan, options);
#ifdef TS_WITH_CUDA
  return bind_cuda(engine, plan, options);
#else
  return machine_error("this program was built without CUDA");
#endif
}

}  // namespace tessera
