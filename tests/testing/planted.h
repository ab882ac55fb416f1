// SPDX-License-Identifier: Apache-2.0
// Faults planted in the middle of a lowering, for tests of what a build finds by itself
// (verify/validate/validate_plan.h): a model as `tessera build` would have it before types are given, the passes up to
// a plan with a fault between two of them, and faults of stored numbers in whatever type they are stored.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/ranges.h"
#include "plan/engine.h"
#include "verify/validate/validate_plan.h"

namespace tessera::testing {

struct PlantedModel {
  std::string name;
  Graph canonical;
  Ranges ranges;
  // Norms that lowering folds where the target is sm90, and those whose gain and shift it moves into the next layers.
  std::set<std::string> folded, plain = {};
};
// An ONNX file; one of tests/data/models by its stem (its shapes are those of its npz); a graph as text.
PlantedModel planted_model(const std::string& name, const std::string& path, int64_t batch = 2);
PlantedModel exported_model(const std::string& folder, const std::string& stem);
PlantedModel text_model(const std::string& name, const std::string& text);
PlantedModel graph_model(const std::string& name, Graph canonical);

// Returns the layer that the sentence must name; empty where the graph has no place for the fault.
using Plant = std::function<std::string(Graph&)>;
struct Fault {
  std::string name;
  Plant typed = {};  // after quantize
  Plant fused = {};  // before make_plan
};

struct Lowered {
  Status status;      // of the lowering: refused where the target does not run the precision
  std::string layer;  // where the fault was planted; empty: it was not
  Validation found;
};
Lowered lowered_with(const PlantedModel& model, const std::string& precision, Arch target,
                     const Fault* fault = nullptr);

// Each fault in each model and precision, for the CPU and for sm90, is found, and the layer is named. Where a target
// does not run a precision, or a model has no place for the fault, it is not planted; each must be, somewhere. Prints
// how many were found.
void expect_caught(const std::vector<Fault>& faults, const std::vector<PlantedModel>& models,
                   const std::vector<std::string>& precisions);
// The same lowerings without a fault: nothing is found. Returns how many there were.
int expect_none_found(const PlantedModel& model, const std::vector<std::string>& precisions);

// Precisions that this program has.
std::vector<std::string> all_precisions();

// The constant `input` of a node as one of its own, whose codes may be changed; a copy of its scales beside it.
Value& own_constant(Graph& graph, Node& node, size_t input);
// One code of a constant, as its bits.
uint64_t code_at(const Value& v, int64_t i);
void set_code(Value& v, int64_t i, uint64_t code);
// The code two numbers of its element away.
uint64_t two_steps_off(const ElementInfo& element, uint64_t code);
// The constant's codes in another order: element i is what element from(i) was.
void reorder_codes(Value& v, const std::function<int64_t(int64_t)>& from);
// Plain numbers of a constant without scales.
void change_numbers(Value& v, const std::function<void(std::vector<double>&)>& body);

}  // namespace tessera::testing
