// SPDX-License-Identifier: Apache-2.0
// Plan: a graph with every choice made. Tensors have storage (offset in the arena, a constant, a state, an input or an
// output of the caller), steps have variants. An executor that decides nothing runs it. The record of each step is the
// promise: asked, stored, computed, arithmetic, refusals.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "archs/arch.h"
#include "base/refused_layers.h"
#include "op/problem.h"
#include "op/variant.h"

namespace tessera {

enum class Storage : uint8_t { kArena, kConstant, kInput, kOutput, kState };

struct PlanTensor {
  std::string name;
  Operand desc;
  Storage storage = Storage::kArena;
  int64_t index = -1;           // kConstant, kState: of the engine; kInput, kOutput: position in the plan's list
  int64_t offset_bytes = 0;     // from the start of the arena, the constant, the state or the caller's buffer
  int scale = -1, scale2 = -1;  // tensors that hold its scales
};

struct PlanStep {
  std::string layer;  // node name
  std::string op, variant;
  std::string config;        // one of the variant's; empty: its first
  std::vector<int> in, out;  // tensors; -1: absent
  Attrs attrs;
  Program then;
  int64_t workspace_offset = 0, workspace_bytes = 0;  // in the arena
  // The promise.
  std::string role, asked, stored, computed, arithmetic;
  std::vector<Refusal> refusals;
  std::string slow;  // why the variant calls itself slow here: every other one refused; empty: it does not
  int chain = -1;    // neighbouring steps with the same number are one launch (form_chains.h); -1: a launch of its own
};
// Attribute of a step that computes several layers of the model, "q+k+v": how many columns of its result are each
// one's (lower/join_layers.h).
inline constexpr const char* kJoined = "joined";
// Attribute of a gather over tables that are made of the model's, side by side, and their number
// (lower/join_gathers.h).
inline constexpr const char* kTables = "tables";
// The model's layers that a step computes: both where a gate joined two ("gate+up"), all that were joined side by side,
// else its own.
std::vector<std::string> layers_of(const PlanStep& step);

// A tensor that a run is given or gives. One that lies in a state of the engine is the session's: what a run finds
// there if the caller hands it nothing, and leaves there whether or not the caller wants a copy.
struct Port {
  std::string name;
  int tensor;
};

struct Plan {
  std::string name;            // "batch8", "golden" ...
  std::string graph = "main";  // whose plan it is
  Arch arch = Arch::ref;
  int64_t batch = 1;
  // The bucket of lengths that it is made for: sizes of the model by name. Empty: its graph has none.
  std::map<std::string, int64_t> sizes;
  // Hash of the tuning table that some of its kernels were chosen by; empty: by the order of the lists.
  std::string tuning;
  std::string golden;  // the golden plan that it is held against (golden_plans.h); empty: "golden"
  std::vector<PlanTensor> tensors;
  std::vector<PlanStep> steps;
  std::vector<Port> inputs, outputs;
  int64_t arena_bytes = 0;
};

// Whether a port lies in a state of the engine.
bool is_state(const Plan& plan, const Port& port);
// Whether a plan of these sizes takes all that one of the others takes. Contract: of one graph.
bool holds(const std::map<std::string, int64_t>& sizes, const std::map<std::string, int64_t>& others);

// The problem of a step, as its variant sees it.
Problem problem_of(const Plan& plan, const PlanStep& step);

}  // namespace tessera
