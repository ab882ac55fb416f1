// SPDX-License-Identifier: Apache-2.0
#include "verify/f32_model.h"

#include "compile/compile.h"
#include "op/reference.h"

namespace tessera {

Result<F32Model> make_f32_model(const Graph& graph) {
  F32Model f32_model;
  f32_model.graph = graph;
  f32_model.engine.model = graph.name;
  f32_model.engine.precision = "fp32";
  f32_model.engine.target = Arch::cpu;
  ConstantPool pool(f32_model.engine.constants);
  for (const bool reference : {false, true}) {
    TS_ASSIGN(Plan plan, lower_in_f32(graph, pool, reference));
    f32_model.engine.plans.push_back(std::move(plan));
  }
  return f32_model;
}

Result<F32Run> run_f32_model(const F32Model& f32_model, const Samples& samples, const std::set<std::string>& wanted) {
  F32Run run;
  const Plan& plan = f32_model.plan();
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
  TS_ASSIGN(run.outputs, run_plan(f32_model.engine, plan, samples, watching));
  return run;
}

}  // namespace tessera
