// SPDX-License-Identifier: Apache-2.0
// Translation validation: a plan computes what the model does, layer by layer, whatever passes made of it. The model is
// the canonical graph in f32 of the plan's own batch, as it was before types were given. Steps are followed in order,
// by the memory that they read and write:
//   constants   each number is the model's, rounded as its type says (validate_constants.h, counterparts.h)
//   a step that reads what a layer of the model reads, with its attributes and program, types erased, computes the same
//   any other   (a gate, a folded or pooled norm, steps that were split) is computed in f64 without roundings, over
//               numbers that are drawn, with the model's constants; so is the model. Both differ by f64's roundings.
//   scales      of activations are those of the calibration, or those that the model states
// A plan that reads a value and computes it a second time is not understood: drawn numbers do not follow each other.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "ir/graph.h"
#include "ir/ranges.h"
#include "plan/engine.h"

namespace tessera {

struct Validation {
  std::vector<std::string> faults;  // "layer blocks.1.norm1: eps is 0.001, the model has 1e-06", in the plan's order
  int64_t constants = 0, steps = 0, computed = 0;  // how many were compared; of the steps, those that were computed
  bool followed = true;  // false: too large to compute and not the same step by step; only constants were compared
  std::string sentence(const Plan& plan) const;  // "plan batch8: 62 constants, 74 steps, 6 of them computed"
};
// Stored constants that were held against the model's and are right: what says which, and both arrays, so that others
// never have their addresses. Plans of an engine share most of their constants.
using ComparedConstants = std::map<std::string, std::vector<Bytes>>;
struct ValidateOptions {
  const Ranges* ranges = nullptr;  // what activation scales were made from; null: they are not compared
  // Of an engine that was built with refinements, beside the model's file: layers whose weights are not the model's,
  // and those none of whose constants are. What they compute is compared with the model's constants in their place; a
  // factor that the model does not have counts as 1.
  std::set<std::string> refined_weights = {}, divided_layers = {};
  ComparedConstants* compared = nullptr;  // of the engine's plans before this one; constants that it holds are right
};
ValidateOptions refined_of(const Engine& engine);
// Contract: plan and constants are as make_plan made them, or check_engine found nothing wrong with them.
Validation validate_plan(std::span<const EngineConstant> constants, const Plan& plan, const Graph& model,
                         const ValidateOptions& options = {});

// The first few faults as an error of ours; what was compared is added to `said`.
Status check_plan(std::span<const EngineConstant> constants, const Plan& plan, const Graph& model,
                  const ValidateOptions& options, std::vector<std::string>* said = nullptr);

}  // namespace tessera
