// SPDX-License-Identifier: Apache-2.0
#include "cli/batches.h"

#include <filesystem>
#include <memory>

#include "base/memory.h"
#include "base/progress.h"
#include "cli/open_engine.h"
#include "runtime/bind.h"
#include "verify/verify.h"

namespace tessera {

Result<BatchedRun> run_batched(const Engine& engine, const Samples& samples, bool check_golden_first,
                               const std::string& graph) {
  TS_ASSIGN(const std::string name, pick_graph(engine, graph));
  TS_ASSIGN(Fit largest, largest_fit(engine, name));
  return run_batched(engine, samples, check_golden_first, std::move(largest));
}

Result<BatchedRun> run_batched(const Engine& engine, const Samples& samples, bool check_golden_first, Fit fit) {
  TS_TRY(check_target(engine));
  const Plan& plan = *fit.plans[0];
  for (size_t i = 0; i < plan.inputs.size(); ++i)  // as they were read
    fit.inputs[i] = plan.tensors[static_cast<size_t>(plan.inputs[i].tensor)].desc.shape;
  std::vector<const void*> inputs;
  for (const Bytes& b : samples.data) inputs.push_back(b.data());
  std::vector<Buffer> gathered;
  std::vector<void*> outputs;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const Port& p = plan.outputs[i];
    const Element element = plan.tensors[static_cast<size_t>(p.tensor)].desc.type.element;
    fit.outputs[i][0] = samples.count;
    TS_ASSIGN(Buffer all, allocate(packed_bytes(element, elements(fit.outputs[i])), cat("output '", p.name, "'")));
    outputs.push_back(all.data());
    gathered.push_back(std::move(all));
  }
  Progress progress("running", samples.count);
  BatchOptions options;
  options.graph = plan.graph;
  options.progress = [&](int64_t done) {
    progress.advance(done);
    return Status();
  };
  if (check_golden_first) options.admit = golden_first(engine);
  BatchRunner runner(engine, options);
  TS_TRY(runner.run(fit, samples.count, inputs, outputs));
  BatchedRun result{.outputs = {}, .times = runner.times(), .machine = runner.machine(), .used = runner.used()};
  for (size_t i = 0; i < gathered.size(); ++i)
    result.outputs.push_back(output_array(plan, i, fit.outputs[i], samples.count, std::move(gathered[i])));
  return result;
}

std::function<Status(const Plan& plan)> golden_first(const Engine& engine) {
  return [&engine, checked = std::make_shared<CheckedConstants>()](const Plan& p) {
    const Status s = require_golden(engine, p, *checked);
    if (s.code() != Code::kVerifyFailed) return s;
    return Status(s.code(), s.message() + "; tessera verify names the layer, --no-verify runs it all the same");
  };
}

Status refuse_overwrite(const std::string& outputs, std::initializer_list<std::string> sources) {
  std::error_code none;
  for (const std::string& source : sources) {
    if (!outputs.empty() && std::filesystem::equivalent(source, outputs, none))
      return usage_error(cat("--outputs would overwrite ", source));
  }
  return {};
}

}  // namespace tessera
