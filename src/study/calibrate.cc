// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/progress.h"
#include "compile/compile.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

void record(Ranges& ranges, const std::string& name, const Dense& numbers) {
  float& amax = ranges.amax[name];
  for (double x : numbers.v) {
    if (std::isnan(amax)) return;  // it must stay visible: passes/quantize refuses it
    if (!(std::fabs(x) <= amax)) amax = static_cast<float>(std::fabs(x));
  }
}

}  // namespace

Result<Ranges> calibrate(const Graph& graph, const CalibrateOptions& options) {
  Engine engine;
  ConstantPool pool(engine.constants);
  LowerOptions lowering;
  lowering.types.precision = "fp32";
  lowering.types.keep_stated = true;
  lowering.plan.target = Arch::cpu;
  lowering.plan.batch = batch_of(graph);
  TS_ASSIGN(Plan plan, lower(graph, lowering, pool));
  Samples samples;
  Ranges ranges;
  if (options.path.empty()) {
    samples = random_samples(plan, std::min<int64_t>(options.samples, 8), /*seed=*/77);
    ranges.how = cat("amax over ", samples.count, " seeded random inputs, not data: give --calib for real scales");
  } else {
    TS_ASSIGN(samples, read_samples(plan, options.path));
    const int64_t used = std::min(samples.count, options.samples);
    ranges.how = cat("amax over ", used, " samples of ", options.path.substr(options.path.rfind('/') + 1));
  }
  ExecutorOptions observing;
  observing.observe = [&](const PlanStep& step, std::span<const TensorView>, std::span<const TensorView> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      record(ranges, plan.tensors[static_cast<size_t>(step.out[i])].name, decode(out[i]));
    }
  };
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan, observing));
  const int64_t used = std::min(samples.count, options.samples);
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("calibrating", used);
  Outputs outputs = make_outputs(plan);
  for (int64_t first = 0; first < used; first += plan.batch) {
    const int64_t begin = std::min(first, std::max<int64_t>(0, used - plan.batch));
    const Filled inputs = fill_inputs(plan, samples, begin);
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      const Operand& desc = plan.tensors[static_cast<size_t>(plan.inputs[i].tensor)].desc;
      const Dense numbers = decode({.desc = &desc, .data = const_cast<void*>(inputs.pointers[i])});
      for (size_t at = 0; at < numbers.v.size(); ++at) {
        if (!std::isfinite(numbers.v[at])) {
          const size_t one = numbers.v.size() / static_cast<size_t>(plan.batch);
          return bad_input(cat(options.path, ": array '", plan.inputs[i].name, "' holds ", numbers.v[at], " in sample ",
                               (begin + static_cast<int64_t>(at / one)) % samples.count,
                               "; calibration data must be finite"));
        }
      }
      record(ranges, plan.inputs[i].name, numbers);
    }
    TS_TRY(executor->run(inputs.pointers, outputs.pointers));
    if (progress) progress->advance(std::min(plan.batch, used - first));
  }
  return ranges;
}

}  // namespace tessera
