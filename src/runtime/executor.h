// SPDX-License-Identifier: Apache-2.0
// Executor: binds a plan to this machine at load (kernels, library algorithms, arena, CUDA graph) and runs it. It
// decides nothing.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/reference.h"
#include "plan/engine.h"

namespace tessera {

class Residency;

struct ExecutorOptions {
  // Constants and state that several executors of one engine share (residency.h); null: this executor has its own.
  std::shared_ptr<Residency> residency;
  // Called after each step with its operands, which no step overwrites, and its results, in host memory: calibration
  // and layer-by-layer comparison look in here. CUDA plans then run step by step, without their graph, and everything
  // is copied.
  std::function<void(const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out)> observe;
  // `ref` plans only: perturb each step's results, the i-th by noise(step); see op/reference.h.
  std::function<Noise(const PlanStep& step, size_t index)> noise;
  // `ref` plans only: makes the results of a step in the reference's place, or returns false.
  std::function<bool(size_t index, const Problem& problem, std::span<const TensorView> in,
                     std::span<const TensorView> out)>
      make;
  // Tensors that are handed to `seen` and then replaced as soon as a step has written them, so that what comes after
  // begins with known numbers. `seen` gets their place in this list, and their bytes in host memory. CUDA plans then
  // run step by step, without their graph.
  struct Replaced {
    int tensor;
    Bytes data;  // dense rows
  };
  std::vector<Replaced> replaced;
  std::function<void(size_t which, const uint8_t* bytes)> seen;
  int device = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Host memory in and out, in the order of the plan's ports; sizes are those of the ports' tensors. Blocks until done.
  virtual Status run(std::span<const void* const> inputs, std::span<void* const> outputs) = 0;
  // Device memory in and out, asynchronous on the caller's stream (CUDA plans; one graph launch). Host plans: the same
  // as run.
  virtual Status enqueue(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream) = 0;
  // Milliseconds of each of `repeats` runs after a warm-up, inputs resident where the plan runs (CUDA: events around
  // graph launches).
  virtual Result<std::vector<double>> time_runs(std::span<const void* const> inputs, int repeats) = 0;
  // Milliseconds per step of one run, measured step by step (CUDA: without the graph).
  virtual Result<std::vector<double>> time_steps(std::span<const void* const> inputs) = 0;
  virtual std::string machine() const = 0;  // "NVIDIA H200", "Neoverse-V1, 2 threads"
};

// `engine` and `plan` must outlive the executor.
Result<std::unique_ptr<Executor>> bind(const Engine& engine, const Plan& plan, const ExecutorOptions& options = {});

// Empty where this machine can run plans of the arch, else the reason.
std::string why_not_here(Arch arch);

}  // namespace tessera
