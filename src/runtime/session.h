// SPDX-License-Identifier: Apache-2.0
// A session: an engine's graphs over one state, and its schedule as one call. On a GPU the whole schedule is one CUDA
// graph; each graph of it can be run by itself as well. Sessions of an engine share its weights. A program that
// prepares the next answer while this one is computed (pipelining) makes two sessions over the same weights: each has a
// copy of the state.
// A graph may have plans for several buckets of lengths. A session runs one plan of each graph at a time, and may be
// told to run others from the next call on: they lie over the same state, of which a smaller one uses the front.
// One call at a time, like an executor.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "archs/cuda/device_memory.h"
#include "plan/engine.h"
#include "runtime/bind.h"
#include "runtime/executor.h"
#include "runtime/recording.h"
#include "runtime/state.h"

namespace tessera {

struct SessionOptions {
  int threads = 0, device = 0;  // of the executors (ExecutorOptions)
  // Of the plans; 0: the smallest that each graph has. Of several buckets it is the largest.
  int64_t batch = 0;
  // The plan of a graph by its name, whatever its batch and bucket.
  std::map<std::string, std::string> cases;
  // Null: its own, all zeros. Sessions that are handed the same one do not run at the same time: a schedule has it from
  // its first graph to its last, and whoever else asks for it meanwhile is refused.
  std::shared_ptr<State> state;
  // Asked before a plan's executor is made, and what it returns if that is an error: the golden check
  // (verify::require_golden), which reads constants that a load does not.
  std::function<Status(const Plan& plan)> admit;
  // Of its executors (ExecutorOptions): asked between the steps of host plans. A run that it ends leaves in the state
  // what the steps before wrote, of a schedule that is not whole.
  std::function<bool()> go_on;
};

class Session {
 public:
  // `engine` must outlive it. Plans are bound when they are first needed.
  ~Session();
  static Result<std::unique_ptr<Session>> make(const Engine& engine, const SessionOptions& options = {});

  // What the schedule is given and gives: ports of its graphs that lie in no state. Inputs of one name are one port;
  // an output that several runs make is that of the last.
  struct PortOf {
    std::string name;
    const Plan* plan;
    size_t port;
  };
  // The schedule over one plan of each graph. It lives as long as its session.
  class Route {
   public:
    const std::vector<PortOf>& inputs() const { return inputs_; }
    const std::vector<PortOf>& outputs() const { return outputs_; }

   private:
    friend class Session;
    struct Item {
      const Plan* plan;
      int64_t times;
      std::vector<size_t> in, out;  // per port of the plan: index into the schedule's; kOwn: it lies in a state
      std::vector<CacheLength> lengths;
    };
    const std::map<std::string, const Plan*>* plans_ = nullptr;
    std::vector<Item> items_;
    std::vector<PortOf> inputs_, outputs_;
    // On a GPU. The recorded runs find the buffers through the table (cuda_slots.h): per item its plan's inputs, then
    // its outputs.
    std::unique_ptr<Recording> recording_;
    DeviceBuffer table_;
    std::vector<void*> in_table_, wanted_;  // empty: unknown
    std::vector<DeviceBuffer> buffers_;     // of runs from host memory: inputs, then outputs
  };

  // From now on these plans, by graph, as SessionOptions::cases names them; graphs that are not named keep theirs. The
  // named plans are bound and admitted first: where one fails, or they do not go together, the session stays as it is.
  // On a GPU the CUDA graph of such a combination is made when it is first run, and kept. inputs() and outputs() are
  // this combination's.
  Status use(const std::map<std::string, std::string>& cases);
  // The same in two steps, for whoever has more to make ready: nothing is changed before the second, which cannot fail.
  // Contract: no other thread calls the session at the second.
  Result<Route*> ready(const std::map<std::string, std::string>& cases);
  void use(Route& route) { route_ = &route; }
  // The plan of a graph in this session, and its executor over the session's state.
  Result<const Plan*> plan(const std::string& graph) const;
  Result<Executor*> graph(const std::string& name);

  const std::vector<PortOf>& inputs() const { return route_->inputs(); }
  const std::vector<PortOf>& outputs() const { return route_->outputs(); }
  // Host memory, in the order of these ports. Blocks until done. Numbers that a cache has no room for (CacheLength) are
  // refused before the first graph runs.
  Status run(std::span<const void* const> inputs, std::span<void* const> outputs);
  // Device memory, asynchronous on the caller's stream; host plans: the same as run. Numbers that lie on a device are
  // not looked at: kernels clamp them.
  Status enqueue(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream);
  // Milliseconds of each of `repeats` runs of the whole schedule after `warmup` others (kOwnWarmup: as executors have
  // it), inputs resident where the plans run and outputs left there (CUDA: events around the schedule's one graph).
  Result<std::vector<double>> time_runs(std::span<const void* const> inputs, int repeats, int warmup = kOwnWarmup);
  // All zeros again: a new session.
  Status clear() { return state_->clear(); }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  static constexpr size_t kOwn = static_cast<size_t>(-1);
  using PlanOfGraph = std::map<std::string, const Plan*>;

  Session(const Engine& engine, SessionOptions options) : engine_(engine), options_(std::move(options)) {}
  Status prepare();
  // The plan of this name, or the one of a session that is told nothing.
  Result<const Plan*> pick(const std::string& graph, const std::string* named) const;
  Result<Route*> route_of(const std::map<std::string, std::string>& cases);  // with the named plans bound
  Result<Route*> route_over(const PlanOfGraph& plans);
  static Status check_together(const std::vector<ScheduleItem>& schedule, const PlanOfGraph& plans);
  Result<Executor*> executor_of(const Plan& plan);
  static Result<size_t> port_of(std::vector<PortOf>& ports, const Plan& plan, size_t port, bool input);
  enum class Side { kHost, kDevice };  // where the caller's buffers lie
  Status check(std::span<const void* const> inputs, std::span<void* const> outputs, Side side) const;
  Status check_lengths(std::span<const void* const> inputs) const;
  // Every run of the schedule in order, with these buffers.
  Status put_runs(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream, bool host);
  Status record();
  Status make_buffers();
  // From the host into the route's buffers, which the table then shows.
  Status fill_buffers(std::span<const void* const> inputs);
  // Has the recorded runs use these buffers, in the order of the stream.
  Status show(std::span<const void* const> inputs, std::span<void* const> outputs, Stream stream);

  const Engine& engine_;
  const SessionOptions options_;
  DeviceKind kind_ = DeviceKind::kHost;
  std::shared_ptr<State> state_;
  std::map<const Plan*, std::unique_ptr<Executor>> executors_;
  std::map<PlanOfGraph, Route> routes_;
  Route* route_ = nullptr;  // in use
  std::atomic<bool> taken_{false};
};

}  // namespace tessera
