// SPDX-License-Identifier: Apache-2.0
// Executor: binds a plan to this machine at load (kernels, library algorithms, arena, CUDA graph) and runs it. It
// decides nothing. Executors of one engine share its weights, per device; arena and state are each executor's own, so
// that n of them take weights + n x (arena + state), and run side by side in n threads. One executor runs one call at a
// time: a call from a second thread is refused with an error, and never gives a wrong result.
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

class State;

// What the offsets in an arena are made for: cudaMalloc's own, and more than a cache line.
inline constexpr int64_t kArenaAlignment = 256;

struct ExecutorOptions {
  // What the session keeps between runs (state.h). Null: the executor makes its own. Executors that are handed the same
  // one (prefill and decode over one KV cache) run one at a time, in the order of their calls.
  std::shared_ptr<State> state;
  // Host plans: 0 for the pool of threads that the process shares, which runs one step at a time, whoever calls; else a
  // pool of so many threads for this executor alone, the caller's included (base/parallel.h).
  int threads = 0;
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
  // Working memory of the caller's, which outlives the executor: at least the plan's arena_bytes, aligned to
  // kArenaAlignment, where the plan runs. No two executors may run in it at the same time. Null: the executor's own.
  uint8_t* arena = nullptr;
  int64_t arena_bytes = 0;
  // Host plans: asked before each step, in the calling thread; false ends the run with kCancelled
  // (base/progress_sink.h). What the steps before it wrote to a state stays there.
  std::function<bool()> go_on;
  // Of a CUDA plan. Calls set it and leave the calling thread with the device that it had.
  int device = 0;
};

// When the steps of one run began and ended.
struct StepTimes {
  std::vector<double> begin_us, end_us;  // per step, from the begin of the run
  double run_us = 0;
};
// As many runs as the kind of device needs: 1 on the host (pages, caches), 20 on a GPU (its clock).
inline constexpr int kOwnWarmup = -1;

class Executor {
 public:
  virtual ~Executor() = default;
  // Host memory in and out, in the order of the plan's ports; sizes are those of the ports' tensors. Blocks until done.
  // Ports that lie in the session's state may be null: the run goes on from the state and leaves it changed. What is
  // given for one is put into the state first, or copied from it afterwards.
  virtual Status run(std::span<const void* const> inputs, std::span<void* const> outputs) = 0;
  // Device memory in and out, asynchronous on the caller's stream (CUDA plans; one graph launch). Host plans: the same
  // as run. The buffers must stay until the stream has passed the run. Runs come in the order of their calls, on
  // whatever streams.
  // A stream under capture gets the steps themselves, with these buffers, and waits for nothing outside. Then it is the
  // caller's business that the executor outlives the graph, and that no replay meets another replay or another run of
  // this executor or state: they use the same arena.
  virtual Status enqueue(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream) = 0;
  // CUDA plans, on a stream under capture: the steps, which find inputs and outputs through a table of pointers in
  // device memory when they run: the plan's inputs in their order, then its outputs. Those of ports in a state are not
  // read. So the captured graph serves any buffers, and whoever launches it sees to the table.
  virtual Status enqueue_through(void* const* table, Stream stream) {
    (void)table, (void)stream;
    return machine_error("a plan that runs on the host has no table of buffers");
  }
  // Milliseconds of each of `repeats` runs after `warmup` others, inputs resident where the plan runs (CUDA: events
  // around graph launches).
  virtual Result<std::vector<double>> time_runs(std::span<const void* const> inputs, int repeats,
                                                int warmup = kOwnWarmup) = 0;
  // The same runs with a stamp before and after each step, inside the run. CUDA: events between the steps, without the
  // graph; profile/ has a better way where CUPTI is at hand.
  virtual Result<std::vector<StepTimes>> time_steps(std::span<const void* const> inputs, int repeats,
                                                    int warmup = kOwnWarmup) = 0;
  // Kernels, copies and fills of each step in the plan's CUDA graph, in the order of the steps; empty: there is none.
  virtual std::vector<int> launches() const { return {}; }
  virtual std::string machine() const = 0;  // "NVIDIA H200", "Neoverse-V1, 2 threads"
};

// `engine` and `plan` must outlive the executor.
Result<std::unique_ptr<Executor>> bind(const Engine& engine, const Plan& plan, const ExecutorOptions& options = {});

// Empty where this machine can run plans of the arch (on that GPU), else the reason.
std::string why_not_here(Arch arch, int device = 0);
// The same of an engine's target, as an error.
Status check_runs_here(const Engine& engine, int device = 0);

}  // namespace tessera
