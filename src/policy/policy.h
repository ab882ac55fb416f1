// SPDX-License-Identifier: Apache-2.0
// A robot policy: an engine of the graphs vision, prefix and step (models/pi05), one observation in, a chunk of actions
// out. One call at a time, as a session. Where a graph has plans for several numbers of views and lengths of the
// prompt, the smallest that holds the observation runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plan/engine.h"
#include "policy/observation.h"
#include "runtime/session.h"

namespace tessera {

// What lies between observation and actions, in the rows of the sequence as it was given; dropped rows are zeros.
struct PolicyStages {
  std::vector<float> image_tokens;       // [views * patches, width]
  std::vector<std::vector<float>> k, v;  // per layer [rows, kv heads, head]
  std::vector<float> velocity;           // of the first step
};

// Milliseconds of each run.
struct PolicyTimes {
  std::vector<double> resident_ms;  // the whole schedule, from inputs where the plans run to actions there
  std::vector<double> host_ms;      // from host memory to host memory
  // One run of each graph by itself, in the order of the schedule.
  struct OfGraph {
    std::string graph, plan;
    int64_t times;  // that the schedule runs it
    std::vector<double> ms;
  };
  std::vector<OfGraph> graphs;
  std::string machine;
};

class Policy {
 public:
  // `engine` must outlive it. The error says what the engine is instead of a policy.
  static Result<std::unique_ptr<Policy>> make(const Engine& engine, const SessionOptions& options = {});
  const PolicySizes& sizes() const { return sizes_; }
  int64_t layers() const { return layers_; }
  Shape cache_shape() const;  // of one layer: [rows, kv heads, head]
  int64_t width() const;      // of an image token

  // Names of the plans that the last observation ran through, in the order of the schedule.
  const std::vector<std::string>& plans() const { return used_; }

  // [horizon * actions]
  Result<std::vector<float>> act(const PackedObservation& observation);
  // The same, graph by graph. `given_rows`: of the sequence before it was packed.
  Result<std::vector<float>> act(const PackedObservation& observation, int64_t given_views, int64_t given_rows,
                                 PolicyStages& stages);

  // One observation, graph by graph; `see` gets the arrays that each run of a graph reads, as f32 or as the port has
  // them, states among them: what calibration runs that graph with. Contract: the plans run on the host.
  using SeeInputs = std::function<Status(const std::string& graph, int64_t run, std::vector<Array> inputs)>;
  Status trace(const PackedObservation& observation, const SeeInputs& see);
  // Graphs by themselves are timed in the order of the schedule, each over what the one before it left. `warmup`:
  // kOwnWarmup or a number of runs that do not count.
  Result<PolicyTimes> time(const PackedObservation& observation, int repeats, int warmup = kOwnWarmup);

 private:
  explicit Policy(const Engine& engine) : engine_(engine) {}
  Status read_sizes();
  // From now on the plans for such an observation.
  Status use_plans_for(const PackedObservation& o);
  const void* input(const std::string& name, const PackedObservation& o) const;
  Array array_of(const Plan& plan, const Port& port, const PackedObservation& o) const;
  Result<std::vector<const void*>> inputs_of_schedule(const PackedObservation& o) const;
  Status time_graphs(const PackedObservation& o, int repeats, int warmup, PolicyTimes& times);
  // One graph; `outputs` by name get what it leaves, as f32.
  Status run_graph(const std::string& graph, const PackedObservation& o,
                   const std::vector<std::pair<std::string, std::vector<float>*>>& outputs);

  const Engine& engine_;
  std::unique_ptr<Session> session_;
  const Plan *vision_ = nullptr, *prefix_ = nullptr, *step_ = nullptr;  // the largest
  PolicySizes sizes_;
  int64_t layers_ = 0, steps_ = 0;
  std::vector<std::string> used_;
};

}  // namespace tessera
