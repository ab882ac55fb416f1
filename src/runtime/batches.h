// SPDX-License-Identifier: Apache-2.0
// Runs any number of samples through an engine's plans of fixed batch sizes: the largest plan that is filled, again and
// again, then the smallest that holds the rest; what a last chunk has too few is filled up with the first samples and
// cut off again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "runtime/fit_lengths.h"
#include "runtime/weights.h"

namespace tessera {

// Names of an engine's graphs, in the order of their plans.
std::vector<std::string> graph_names(const Engine& engine);
// The one that is asked for, or the only one; an error where it is not there or several could be meant.
Result<std::string> pick_graph(const Engine& engine, const std::string& asked);

// Plans that users run: all but golden ones; of one graph where it is named.
std::vector<const Plan*> runnable_plans(const Engine& engine, const std::string& graph = "");

// Of each graph those of its largest bucket of lengths, which take all samples.
std::vector<const Plan*> largest_plans(const Engine& engine, const std::string& graph = "");

struct Chunk {
  const Plan* plan;
  int64_t first, count;  // samples
};
// Contract: at least one plan, samples > 0.
std::vector<Chunk> split_into_chunks(const std::vector<const Plan*>& plans, int64_t samples);

struct BatchOptions {
  std::string graph;            // empty: the only one
  int threads = 0, device = 0;  // of the executors (ExecutorOptions)
  // Asked before a plan's executor is made, and what it returns if that is an error: the golden check.
  std::function<Status(const Plan& plan)> admit;
  std::function<Status(int64_t samples)> progress;  // so many more are done; an error ends the run
  std::function<bool()> go_on;                      // of the executors, and asked between their runs
};
struct BatchTimes {
  int64_t runs = 0;
  double run_seconds = 0;                      // in the executors
  double admit_seconds = 0, bind_seconds = 0;  // before the first run of each plan
};

// Executors are made when their plan is first needed, and kept. One call at a time, like an executor.
class BatchRunner {
 public:
  // `engine` must outlive it.
  explicit BatchRunner(const Engine& engine, BatchOptions options = {});
  ~BatchRunner();
  // Host memory: a dense array [samples, ...] per port of the plans, in its type. Of an engine whose plans are for
  // several lengths the largest.
  Status run(int64_t samples, std::span<const void* const> inputs, std::span<void* const> outputs);
  // The same through the plans that the arrays' lengths fit: arrays have the shapes of `fit`, but for the samples.
  Status run(const Fit& fit, int64_t samples, std::span<const void* const> inputs, std::span<void* const> outputs);

  const BatchTimes& times() const { return times_; }
  const std::vector<const Plan*>& used() const { return used_; }  // in the order of their first run
  const std::string& machine() const { return machine_; }         // empty before the first run

 private:
  struct Bound;
  Result<Bound*> bound(const Plan& plan);
  Status run_chunk(const Chunk& chunk, const Fit& fit, int64_t samples, std::span<const void* const> inputs,
                   std::span<void* const> outputs);

  const Engine& engine_;
  const BatchOptions options_;
  Fit largest_;                             // of the graph, from the first run on
  std::shared_ptr<const Weights> weights_;  // one copy from the first plan's check to the last one's run
  std::map<const Plan*, std::unique_ptr<Bound>> bound_;
  BatchTimes times_;
  std::vector<const Plan*> used_;
  std::string machine_;
};

}  // namespace tessera
