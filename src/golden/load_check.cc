// SPDX-License-Identifier: Apache-2.0
#include "golden/load_check.h"

#include "base/log.h"
#include "base/parallel.h"
#include "golden/golden_run.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"

namespace tessera {
namespace {

// Bytes of all outputs after a run by the plan's graph, and after one step by step: the same kernels give the same
// bits.
Status check_graph(const Engine& engine, const Plan& plan, const Samples& samples, const ExecutorOptions& options) {
  if (info(plan.arch).device != DeviceKind::kCuda) return {};
  ExecutorOptions one_by_one = options;
  one_by_one.observe = [](const PlanStep&, std::span<const TensorView>, std::span<const TensorView>) {};
  TS_ASSIGN(const Outputs64 graph, run_plan(engine, plan, samples, options));
  TS_ASSIGN(const Outputs64 steps, run_plan(engine, plan, samples, one_by_one));
  for (size_t i = 0; i < graph.size(); ++i) {
    if (graph[i] != steps[i])
      return {Code::kVerifyFailed,
              cat("output '", plan.outputs[i].name, "' of the graph differs from that of its kernels run one by one")};
  }
  return {};
}

}  // namespace

Samples golden_samples(const Engine& engine, const Plan& plan) {
  const Plan* golden = golden_plan(engine, plan);
  const GoldenForm* form = golden == nullptr ? nullptr : golden_form(engine, *golden);
  const std::vector<GoldenTensor>& inputs = form == nullptr ? engine.golden.inputs : inputs_of(engine.golden, *form);
  Samples samples{.count = inputs.empty() ? 1 : inputs[0].shape[0], .names = {}, .data = {}};
  for (const GoldenTensor& t : inputs) {
    const size_t i = samples.names.size();
    samples.names.push_back(t.name);
    samples.data.push_back(t.data);
    // (check_engine: a port of f32 may have its golden input in f16.)
    const QuantType& port = plan.tensors[static_cast<size_t>(plan.inputs[i].tensor)].desc.type;
    samples.elements.push_back(port.element);
    if (t.type == port) continue;
    Buffer wide(static_cast<size_t>(elements(t.shape)) * sizeof(float));
    info(t.type.element).decode(t.data.data(), 0, elements(t.shape), reinterpret_cast<float*>(wide.data()));
    samples.data.back() = Bytes::own(std::move(wide));
  }
  if (!inputs.empty()) clamp_lengths(plan, samples);
  return samples;
}

Result<VerifyReport> check_golden(const Engine& engine, const Plan& plan, const ExecutorOptions& options) {
  const Plan* golden = golden_plan(engine, plan);
  const GoldenForm* form = golden == nullptr ? nullptr : golden_form(engine, *golden);
  if (form == nullptr) return bad_input("the engine holds no golden values (built with --no-verify)");
  const GoldenForm& g = *form;
  const Samples samples = golden_samples(engine, plan).part(0, g.samples());
  VerifyReport report;
  report.plan = plan.name;
  report.samples = samples.count;
  // All samples side by side; then, since runs put any samples side by side, each of the first two alone: one that
  // reads the others gives something else.
  std::vector<std::pair<int64_t, int64_t>> parts = {{0, samples.count}};
  if (plan.batch > 1 && samples.count > 1) parts.insert(parts.end(), {{0, 1}, {1, 1}});
  for (const auto& [first, count] : parts) {
    TS_ASSIGN(const ValueRun run,
              run_by_values(engine, plan, g.values, samples.count, samples, first, count, &report.machine, options));
    VerifyReport here;
    here.values = run.values;
    for (size_t i = 0; i < g.outputs.size(); ++i) {
      std::vector<double> want(static_cast<size_t>(elements(g.outputs[i].shape)));
      info(g.outputs[i].type.element)
          .decode_f64(g.outputs[i].data.data(), 0, static_cast<int64_t>(want.size()), want.data());
      const std::vector<double> part = repeat_to(want, samples.count, first, count, plan.batch);
      here.outputs.push_back(
          judge_output(g.outputs[i].name, run.outputs[i], part, plan.batch, bound_of_part(g.bounds[i], want, part)));
    }
    conclude(here);
    const bool whole = count == samples.count;
    if (whole)
      report.values = here.values, report.outputs = here.outputs, report.ok = here.ok, report.sentence = here.sentence;
    if (here.ok) continue;
    report.ok = false;
    if (!whole) report.sentence = cat(depends_sentence(g.outputs[0].name), " (", here.sentence, ")");
    return report;
  }
  if (const Status same = check_graph(engine, plan, samples, options); !same.ok()) {
    if (same.code() != Code::kVerifyFailed) return same;
    report.ok = false, report.graph_differs = true, report.sentence = same.message();
  }
  return report;
}

Status CheckedConstants::check(const Engine& engine, const Plan& plan) {
  std::vector<bool> unread(engine.constants.size(), false);
  mark_constants(plan, unread);
  {
    const std::lock_guard lock(lock_);
    checked_.resize(unread.size(), false);
    for (size_t i = 0; i < unread.size(); ++i) unread[i] = unread[i] && !checked_[i];
  }
  TS_TRY(check_constants(engine, unread));
  const std::lock_guard lock(lock_);
  for (size_t i = 0; i < unread.size(); ++i) checked_[i] = checked_[i] || unread[i];
  return {};
}

Status require_golden(const Engine& engine, const Plan& plan, CheckedConstants& checked,
                      const ExecutorOptions& options) {
  if (!has_golden_values(engine, plan)) {
    const std::shared_ptr<ThreadPool> own = options.threads > 0 ? make_pool(options.threads) : nullptr;
    const UsePool pool(own.get());
    TS_TRY(checked.check(engine, plan));
    if (!engine.golden.forms.empty())  // else the engine was warned of when it was opened
      warn(
          cat("plan '", plan.name, "' has no golden values: it is not compared with its build, its weights are whole"));
    return {};
  }
  TS_ASSIGN(const VerifyReport report, check_golden(engine, plan, options));
  if (report.ok) return {};
  return {Code::kVerifyFailed,
          cat("plan ", plan.name, " does not reproduce its golden values here: ", report.sentence)};
}

}  // namespace tessera
