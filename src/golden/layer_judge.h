// SPDX-License-Identifier: Apache-2.0
// Layer by layer: each step of a plan is judged on the very activations that it read, so that errors do not add up from
// layer to layer. op/judge.h says which results are allowed: equal to the last bit but for named ties where the kernel
// is emulated, else within the error bounds of its arithmetic. Weights, scales,
// attributes and program are the golden plan's, where that has the step (judged_step.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "golden/judged_step.h"
#include "op/judge.h"
#include "plan/engine.h"

namespace tessera {

struct LayerReport {
  std::string layer, op, variant;  // `layer` is unique in its plan: "attention, step 7" where several have the name
  bool emulated = false;           // to the last bit but for ties; else bounded
  double relative_l2 = 0;          // of its results to those wanted, of the run with the worst share
  double bound = 0;                // what could pass
  double cosine = 1;
  double share = 0;                                 // of what one result is allowed, the worst of the runs seen
  int64_t results = 0, differ = 0, may_differ = 0;  // numbers of the runs seen: all, not the nominal one, near a tie
  bool finite = true;                               // no NaN or Inf where the reference has none
  double got = 0, low = 0, high = 0;                // the worst result, and what it may be
  std::string differs;                              // from the golden plan, however near its numbers are: a sentence
  bool ok() const { return finite && share <= 1 && differs.empty(); }
};

class LayerJudge {
 public:
  // Where the plan's batch is larger than the golden plan's, only that many samples of it are compared. Fails where a
  // step cannot be what the golden plan says. Contract: check_engine found nothing; all outlive the judge.
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
  std::vector<JudgedStep> judged_;    // per step
  std::vector<LayerReport> reports_;  // per step
  Status status_;
};

}  // namespace tessera
