// SPDX-License-Identifier: Apache-2.0
// The f32 twin of an engine: the graph that quantize was given, with its own roundings only, as a plan on the CPU. Its
// values have the names that they have in the engine's plans, so layers can be held against each other one by one.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "plan/engine.h"
#include "verify/golden_run.h"
#include "inputs/samples.h"

namespace tessera {

struct Twin {
  Graph graph;    // it was made from; constants are shared
  Engine engine;  // two plans: "f32" on the CPU, and "golden", the same by the references

  const Plan& plan() const { return engine.plans.front(); }
  const Plan& reference() const { return engine.plans.back(); }
};
// `graph` is canonical and in f32.
Result<Twin> make_twin(const Graph& graph);

// What the twin computed: its outputs, and the values that were asked for.
struct TwinRun {
  Outputs64 outputs;
  std::map<std::string, std::vector<float>> values;
};
Result<TwinRun> run_twin(const Twin& twin, const Samples& samples, const std::set<std::string>& wanted);

}  // namespace tessera
