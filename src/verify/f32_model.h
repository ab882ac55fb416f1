// SPDX-License-Identifier: Apache-2.0
// The f32 model of an engine: the graph that quantize was given, with its own roundings only, as a plan on the CPU. Its
// values have the names that they have in the engine's plans, so layers can be held against each other one by one.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "golden/golden_run.h"
#include "inputs/samples.h"
#include "ir/graph.h"
#include "plan/engine.h"

namespace tessera {

struct F32Model {
  Graph graph;    // it was made from; constants are shared
  Engine engine;  // two plans: "f32" on the CPU, and "golden", the same by the references

  const Plan& plan() const { return engine.plans.front(); }
  const Plan& reference() const { return engine.plans.back(); }
};
// `graph` is canonical and in f32.
Result<F32Model> make_f32_model(const Graph& graph);

// What the f32 model computed: its outputs, and the values that were asked for.
struct F32Run {
  Outputs64 outputs;
  std::map<std::string, std::vector<float>> values;
};
Result<F32Run> run_f32_model(const F32Model& f32_model, const Samples& samples, const std::set<std::string>& wanted);

}  // namespace tessera
