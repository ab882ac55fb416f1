// SPDX-License-Identifier: Apache-2.0
#include "verify/twin.h"

#include "compile/compile.h"
#include "ops/reference.h"

namespace tessera {

Result<Twin> make_twin(const Graph& graph) {
  Twin twin;
  twin.graph = graph;
  twin.engine.model = graph.name;
  twin.engine.precision = "fp32";
  twin.engine.target = Arch::cpu;
  ConstantPool pool(twin.engine.constants);
  for (const bool reference : {false, true}) {
    TS_ASSIGN(Plan plan, lower_in_f32(graph, pool, reference));
    twin.engine.plans.push_back(std::move(plan));
  }
  return twin;
}

Result<TwinRun> run_twin(const Twin& twin, const Samples& samples, const std::set<std::string>& wanted) {
  TwinRun run;
  const Plan& plan = twin.plan();
  const auto record = [&](int tensor, const TensorView& view) {
    if (tensor < 0 || view.desc == nullptr) return;
    const std::string& name = plan.tensors[static_cast<size_t>(tensor)].name;
    if (!wanted.contains(name) || run.values.contains(name)) return;
    const Dense d = decode(view);
    run.values.emplace(name, std::vector<float>(d.v.begin(), d.v.end()));
  };
  ExecutorOptions watching;
  watching.observe = [&](const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (step.in[i] >= 0 && plan.tensors[static_cast<size_t>(step.in[i])].storage != Storage::kConstant)
        record(step.in[i], in[i]);
    }
    for (size_t i = 0; i < out.size(); ++i) record(step.out[i], out[i]);
  };
  TS_ASSIGN(run.outputs, run_plan(twin.engine, plan, samples, watching));
  return run;
}

}  // namespace tessera
