// SPDX-License-Identifier: Apache-2.0
#include "golden/golden_run.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "golden/closeness.h"
#include "golden/step_reads.h"
#include "op/errors.h"
#include "ops/ops.h"
#include "precision/masks.h"

namespace tessera {
namespace {

// An engine may be this many times as far from the golden values as the golden plan's own response to noise of its
// arithmetic's size: one draw of the noise estimates the scale of the error, it does not bound it.
constexpr double kResponseMultiple = 4;
// Outputs are f32: two roundings of them are never an error.
constexpr double kFloor = 0x1p-22;

double root_mean_square(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double x : numbers) sum += x * x;
  return numbers.empty() ? 0 : std::sqrt(sum / static_cast<double>(numbers.size()));
}

// Relative error that a step's arithmetic typically leaves on its results: operands' rounding, and a random walk of the
// accumulator's roundings. None where the step only moves numbers.
double typical_error(const Plan& plan, const PlanStep& step) {
  const Variant* v = find_variant(step.variant);
  if (v == nullptr) return 0;
  const Problem p = problem_of(plan, step);
  const int64_t terms = terms_of(*find_op(step.op), p);
  if (terms == 0) return 0;
  const Arithmetic a = v->arithmetic(p);
  const double walk = std::ldexp(1.0, -a.accumulator_bits) * std::sqrt(static_cast<double>(terms));
  return 2 * a.operand_error + 4 * std::max(walk, Roundings(a).unit());  // an exact sum is rounded once all the same
}

}  // namespace

std::vector<double> noise_of_steps(const Plan& plan) {
  std::vector<double> noise;
  for (const PlanStep& s : plan.steps) noise.push_back(typical_error(plan, s));
  return noise;
}

Noise step_noise(double relative, uint64_t seed, bool of_scores) {
  Noise noise{.relative = relative, .seed = seed};
  if (of_scores) noise.most = -kHidesKeys;
  return noise;
}

// Where few numbers are rounded to codes, whether one of them falls on the other side of a boundary is a matter of
// luck: small models are asked several times. In large ones the many average out, and f64 is slow.
int noise_runs(const Plan& golden) {
  double flops = 0;
  for (const PlanStep& s : golden.steps) {
    if (const OpInfo* op = find_op(s.op); op != nullptr && op->flops != nullptr)
      flops += op->flops(problem_of(golden, s));
  }
  return flops < 2e9 ? 8 : 1;
}

Result<Outputs64> run_plan(const Engine& engine, const Plan& plan, const Samples& samples,
                           const ExecutorOptions& options, std::string* machine) {
  const Activity running("plan", plan.name);
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan, options));
  const Filled inputs = fill_inputs(plan, samples, 0);
  Outputs outputs = make_outputs(plan);
  TS_TRY(executor->run(inputs.pointers, outputs.pointers));
  Outputs64 result;
  for (size_t i = 0; i < plan.outputs.size(); ++i) result.push_back(decode_output(plan, i, outputs.pointers[i]));
  if (machine != nullptr) *machine = executor->machine();
  return result;
}

Result<Outputs64> run_noisy(const Engine& engine, const Plan& golden, const Samples& samples,
                            const std::vector<double>& noise, const Outputs64& clean, Progress* progress) {
  Outputs64 farthest;
  const std::vector<bool> scores = steps_of_scores(golden);
  for (int run = 0; run < noise_runs(golden); ++run) {
    ExecutorOptions options;
    options.noise = [&, run](const PlanStep&, size_t i) {
      return step_noise(noise[i], 0x51ed + i + (static_cast<uint64_t>(run) << 32), scores[i]);
    };
    if (progress != nullptr && run == 0) {
      options.observe = [progress](const PlanStep&, std::span<const TensorView>, std::span<const TensorView>) {
        progress->advance();
      };
    }
    TS_ASSIGN(Outputs64 out, run_plan(engine, golden, samples, options));
    if (run == 0) farthest = out;
    for (size_t i = 0; i < out.size(); ++i) {
      if (compare(out[i], clean[i], golden.batch).relative_l2 >
          compare(farthest[i], clean[i], golden.batch).relative_l2)
        farthest[i] = std::move(out[i]);
    }
  }
  return farthest;
}

std::vector<double> repeat_to(const std::vector<double>& numbers, int64_t batch, int64_t first, int64_t count,
                              int64_t wanted) {
  const size_t one = numbers.size() / static_cast<size_t>(batch);
  std::vector<double> out;
  out.reserve(one * static_cast<size_t>(wanted));
  for (int64_t s = 0; s < wanted; ++s) {
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first + s % count) * one);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(one));
  }
  return out;
}

double bound_of_part(double bound, const std::vector<double>& all, const std::vector<double>& part) {
  const double size = root_mean_square(part);
  return size > 0 ? bound * std::max(1.0, root_mean_square(all) / size) : bound;
}

double bound_from(const std::vector<double>& noisy, const std::vector<double>& clean, int64_t samples) {
  return kResponseMultiple * compare(noisy, clean, samples).relative_l2 + kFloor;
}

}  // namespace tessera
