// SPDX-License-Identifier: Apache-2.0
// Runs of plans for comparisons: outputs as numbers, and the golden plan a second time with noise of the size that
// another plan's arithmetic implies on every result. How far that moves the outputs is the scale of the bounds: an
// engine may differ from the golden values by a small multiple of it.
#pragma once

#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "inputs/samples.h"
#include "plan/engine.h"
#include "runtime/executor.h"

namespace tessera {

using Outputs64 = std::vector<std::vector<double>>;  // numbers per port

// Relative error that each step's arithmetic typically leaves on its results. Steps of a plan and of its golden plan
// correspond one to one.
std::vector<double> noise_of_steps(const Plan& plan);

// The noise of one step. Scores: a number that hides keys errs by no more than the score in it does, and f32 rounds
// their sum alike everywhere. Noise of its own size would choose keys at random in a row whose keys are all masked, and
// a bound from that binds nothing.
Noise step_noise(double relative, uint64_t seed, bool of_scores);

// How often a golden plan is run with noise.
int noise_runs(const Plan& golden);

// One run over the first samples, which fill the plan's batch (again and again where they are fewer).
Result<Outputs64> run_plan(const Engine& engine, const Plan& plan, const Samples& samples,
                           const ExecutorOptions& options = {}, std::string* machine = nullptr);
// Of several runs of a golden plan with noise, per output the one that is farthest from the clean run.
Result<Outputs64> run_noisy(const Engine& engine, const Plan& golden, const Samples& samples,
                            const std::vector<double>& noise, const Outputs64& clean, Progress* progress);
// A bound relative to all samples together, of some of them alone: an error of the same size.
double bound_of_part(double bound, const std::vector<double>& all, const std::vector<double>& part);
// Relative L2 error that is allowed of an output.
double bound_from(const std::vector<double>& noisy, const std::vector<double>& clean, int64_t samples);

// Samples first ... first + count - 1 of `numbers`, which hold `batch` of them, again and again until there are
// `wanted`.
std::vector<double> repeat_to(const std::vector<double>& numbers, int64_t batch, int64_t first, int64_t count,
                              int64_t wanted);

}  // namespace tessera
