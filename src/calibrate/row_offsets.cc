// SPDX-License-Identifier: Apache-2.0
#include "calibrate/row_offsets.h"

#include <algorithm>
#include <cmath>

#include "compile/compile.h"
#include "op/reference.h"
#include "runtime/executor.h"

namespace tessera {

Result<std::map<std::string, double>> measure_row_offsets(const Graph& graph, const Samples& samples) {
  Engine engine;
  ConstantPool pool(engine.constants);
  TS_ASSIGN(const Plan plan, lower_in_f32(graph, pool));
  struct Seen {
    double squares = 0;
    int64_t rows = 0;
  };
  std::map<std::string, Seen> seen;
  ExecutorOptions observing;
  observing.observe = [&](const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView>) {
    if (step.op != "norm" || step.attrs.word("kind", "layer") == "rms") return;
    const Dense x = decode(in[0]);
    const size_t cols = static_cast<size_t>(x.shape.back());
    Seen& s = seen[step.layer];
    for (size_t at = 0; at + cols <= x.v.size(); at += cols, ++s.rows) {
      double mean = 0, var = step.attrs.number("eps");
      for (size_t c = 0; c < cols; ++c) mean += x.v[at + c] / static_cast<double>(cols);
      for (size_t c = 0; c < cols; ++c) var += (x.v[at + c] - mean) * (x.v[at + c] - mean) / static_cast<double>(cols);
      s.squares += mean == 0 ? 0 : mean * mean / var;
    }
  };
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan, observing));
  Outputs outputs = make_outputs(plan);
  for (int64_t first = 0; first < samples.count; first += plan.batch) {
    const Filled inputs = fill_inputs(plan, samples, first);
    TS_TRY(executor->run(inputs.pointers, outputs.pointers));
  }
  std::map<std::string, double> offsets;
  for (const auto& [name, s] : seen)
    offsets[name] = std::sqrt(s.squares / static_cast<double>(std::max<int64_t>(1, s.rows)));
  return offsets;
}

}  // namespace tessera
