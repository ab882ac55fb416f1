// SPDX-License-Identifier: Apache-2.0
// Values inside the model at which plans are held against the golden run. Rounding to few bits makes small differences
// large: a code that falls to the other side of a tie in one layer moves a few in the next, and after some layers the
// outputs of two right runs differ by as much as quantization does. So each value is compared and then replaced by the
// golden one before the run goes on: what a plan may differ by is what one stretch of layers explains.
// The golden run is that of the golden plan, each step emulated as the kernel of a plan computes it
// (Variant::emulate), else by its reference in f64.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "golden/golden_run.h"
#include "inputs/samples.h"
#include "plan/engine.h"
#include "runtime/executor.h"

namespace tessera {

// How a plan computes the steps of the golden plan.
class GoldenArithmetic {
 public:
  GoldenArithmetic(const Plan& plan, const Plan& golden);
  // For ExecutorOptions::make. `seed` 0: the middle of what a kernel may give; else one end or the other of each
  // number, by chance.
  bool make(size_t step, const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out,
            uint64_t seed) const;
  // Relative noise of a step that is not emulated.
  double noise(size_t step) const { return noise_[step]; }
  bool operator==(const GoldenArithmetic&) const = default;

 private:
  std::vector<const Variant*> variants_;  // per golden step; null: none
  std::vector<std::string> configs_;
  std::vector<double> noise_;
};

// Results of the golden plan that all later steps depend on alone, as many as are worth their bytes: tensors of it, in
// the order in which they are made.
std::vector<int> choose_values(const Engine& engine, const Plan& golden);

struct GoldenTruth {
  Outputs64 outputs;
  std::vector<double> bounds;  // per output
  std::vector<GoldenValue> values;
};
// The golden run in the arithmetic of the first of `plans`, and how far runs with the noise of any of them are from it
// at each value: plans may split sums otherwise. Advances `progress` twice per golden step.
Result<GoldenTruth> run_golden(const Engine& engine, std::span<const Plan* const> plans, const Plan& golden,
                               const Samples& samples, Progress* progress);

// One run of a plan, value by value, over samples `first` ... `first + count - 1`, again and again until the batch is
// full. `values` are of `in_values` samples, of which these are the first. Of `options` threads and device are meant.
struct ValueReport {
  std::string name;
  double relative_l2 = 0, bound = 0;
  bool finite = true;
  bool ok() const { return finite && relative_l2 <= bound; }
};
struct ValueRun {
  std::vector<ValueReport> values;  // of those that the plan has
  Outputs64 outputs;
};
Result<ValueRun> run_by_values(const Engine& engine, const Plan& plan, const std::vector<GoldenValue>& values,
                               int64_t in_values, const Samples& samples, int64_t first, int64_t count,
                               std::string* machine, ExecutorOptions options = {});

}  // namespace tessera
