// SPDX-License-Identifier: Apache-2.0
// Samples of a file through an engine (runtime/batches.h), with the golden check before, a bar of progress, and arrays
// for numpy after.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "inputs/samples.h"
#include "io/npz.h"
#include "runtime/batches.h"

namespace tessera {

struct BatchedRun {
  std::vector<Array> outputs;  // [samples, ...], in a type that numpy has
  BatchTimes times;
  std::string machine;
  std::vector<const Plan*> used;
};
// `check_golden_first`: each plan reproduces its golden values before it serves, where the engine has them.
Result<BatchedRun> run_batched(const Engine& engine, const Samples& samples, bool check_golden_first,
                               const std::string& graph = "");
// Through the plans of `fit`; samples have the shapes of their ports, results are cut to those of `fit`.
Result<BatchedRun> run_batched(const Engine& engine, const Samples& samples, bool check_golden_first, Fit fit);

// Asked before a plan runs: whether it reproduces its golden values here, or has none and whole weights. `engine`
// must outlive it.
std::function<Status(const Plan& plan)> golden_first(const Engine& engine);

// An error where results would be written over what they are made of.
Status refuse_overwrite(const std::string& outputs, std::initializer_list<std::string> sources);

}  // namespace tessera
