// SPDX-License-Identifier: Apache-2.0
// Layer by layer: each step of a plan is held against the golden plan's step (f64) on the very activations that it
// read, so that errors do not add up from layer to layer and the bound is the arithmetic of one layer (ops/errors.h).
// Weights, scales, attributes and program are the golden plan's. With e_i what rounding to the result's type does not
// explain of result i, and w_i what the roundings of its sums leave when they add up as a random walk:
//   e_i <= 4 sqrt(terms) w_i            for each result (every rounding to the same side)
//   |e|^2 <= sum_i p_i (4 w_i)^2 + ...  in the norm over all, p_i = min(1, 4 w_i / half a step): how likely rounding is
//   to show w_i at all
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/op.h"
#include "plan/engine.h"
#include "study/mirror.h"

namespace tessera {

struct LayerReport {
  std::string layer, op, variant;  // `layer` is unique in its plan: "attention, step 7" where several have the name
  double relative_l2 = 0;          // |e| / |exact|, the worst of the runs seen
  double bound = 0;                // what is allowed of it
  double cosine = 1;               // of the results as they are, to the exact ones
  double share = 0;                // of what is allowed, in the norm or for one result, whichever is worse
  bool one_result = false;         // the share is that of one result
  bool finite = true;              // no NaN or Inf where the reference has none
  bool ok() const { return finite && share <= 1; }
};

class LayerJudge {
 public:
  // Where the plan's batch is larger than the golden plan's, only that many samples of it are compared. Fails where the
  // golden plan does not mirror the plan step by step. Contract: check_engine found nothing; all outlive the judge.
  static Result<LayerJudge> make(const Engine& engine, const Plan& plan, const Plan& golden);
  // For ExecutorOptions::observe, over one run or several.
  void see(const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out);
  // Of the steps seen: numbers that the op's reference cannot read (the golden plan's ids outside their table).
  const Status& status() const { return status_; }
  const std::vector<LayerReport>& reports() const { return reports_; }

 private:
  LayerJudge(const Engine& engine, const Plan& plan, const Plan& golden)
      : engine_(engine), plan_(plan), golden_(golden) {}

  const Engine& engine_;
  const Plan& plan_;
  const Plan& golden_;
  std::vector<MirroredStep> mirrored_;  // per step
  std::vector<LayerReport> reports_;    // per step
  Status status_;
};

}  // namespace tessera
