// SPDX-License-Identifier: Apache-2.0
// Runs any number of samples through an engine's plans of fixed batch sizes: the largest plan that is filled, again and
// again, then the smallest that holds the rest; what a last chunk has too few is filled up and cut off again.
#pragma once

#include <memory>
#include <vector>

#include "inputs/samples.h"
#include "io/npz.h"
#include "runtime/executor.h"

namespace tessera {

struct Chunk {
  const Plan* plan;
  int64_t first, count;  // samples
};
// Contract: at least one plan, samples > 0.
std::vector<Chunk> split_into_chunks(const std::vector<const Plan*>& plans, int64_t samples);

struct BatchedRun {
  std::vector<Array> outputs;  // [samples, ...], in a type that numpy has
  int64_t runs = 0;
  double milliseconds = 0;                      // in the executor, without binding
  double golden_seconds = 0, bind_seconds = 0;  // before the first run of each plan
  std::string machine;
  std::vector<const Plan*> used;
};
// `check_golden_first`: each plan reproduces its golden values before it serves, where the engine has them.
Result<BatchedRun> run_batched(const Engine& engine, const Samples& samples, bool check_golden_first);

}  // namespace tessera
