// SPDX-License-Identifier: Apache-2.0
#include "study/verify.h"

#include <cmath>
#include <map>

#include "runtime/executor.h"

namespace tessera {
namespace {

// An engine may be this many times as far from the golden values as the golden plan's own response to noise of its arithmetic's size: one draw of
// the noise estimates the scale of the error, it does not bound it.
constexpr double kResponseMultiple = 4;
// Outputs are f32: two roundings of them are never an error.
constexpr double kFloor = 0x1p-22;

int64_t terms_of(const Problem& p) {
  if (p.in.empty() || p.in[0].shape.empty()) return 1;
  if (p.op == "attention") return p.in[0].shape.back() + p.in[1].shape[1];
  return p.in[0].shape.back();
}

// Relative error that a step's arithmetic typically leaves on its results: operands' rounding, and a random walk of the accumulator's roundings.
double typical_error(const Plan& plan, const PlanStep& step) {
  const Variant* v = find_variant(step.variant);
  if (v == nullptr) return 0;
  const Problem p = problem_of(plan, step);
  const Arithmetic a = v->arithmetic(p);
  return 2 * a.operand_error + 4 * std::ldexp(1.0, -a.accumulator_bits) * std::sqrt(static_cast<double>(terms_of(p)));
}

struct GoldenRun {
  std::vector<std::vector<double>> outputs;  // per port
  std::vector<std::vector<double>> layers;   // per step: its first result, where asked for
};

// Steps of a plan and of its golden twin correspond one to one.
std::vector<double> noise_of_steps(const Plan& plan) {
  std::vector<double> noise;
  for (const PlanStep& s : plan.steps) noise.push_back(typical_error(plan, s));
  return noise;
}

Result<GoldenRun> run_plan(const Engine& engine, const Plan& plan, const Samples& samples, bool layers, const std::vector<double>* noise,
                           std::string* machine = nullptr) {
  GoldenRun result;
  ExecutorOptions options;
  if (layers) {
    options.observe = [&](const PlanStep&, std::span<const TensorView> out) { result.layers.push_back(decode(out[0]).v); };
  }
  if (noise != nullptr) {
    options.noise = [noise](const PlanStep&, size_t i) { return Noise{(*noise)[i], 0x51ed + i}; };
  }
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan, options));
  const Filled inputs = fill_inputs(plan, samples, 0);
  Outputs outputs = make_outputs(plan);
  TS_TRY(executor->run(inputs.pointers, outputs.pointers));
  for (size_t i = 0; i < plan.outputs.size(); ++i) result.outputs.push_back(decode_output(plan, i, outputs.pointers[i]));
  if (machine != nullptr) *machine = executor->machine();
  return result;
}

// `numbers` of `batch` samples as the first `count` samples of a batch that repeats them.
std::vector<double> repeat_to(const std::vector<double>& numbers, int64_t batch, int64_t count) {
  const size_t one = numbers.size() / static_cast<size_t>(batch);
  std::vector<double> out;
  out.reserve(one * static_cast<size_t>(count));
  for (int64_t s = 0; s < count; ++s) {
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(s % batch) * one);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(one));
  }
  return out;
}

const Plan* golden_plan(const Engine& engine) {
  if (engine.plans.empty() || engine.plans.back().name != "golden") return nullptr;
  return &engine.plans.back();
}

double bound_from(const std::vector<double>& noisy, const std::vector<double>& clean, int64_t samples) {
  return kResponseMultiple * compare(noisy, clean, samples).relative_l2 + kFloor;
}

OutputReport judge(const std::string& name, const std::vector<double>& got, const std::vector<double>& want, int64_t samples, double bound) {
  const Closeness c = compare(got, want, samples);
  return {name, c.cosine_mean, c.cosine_worst, c.relative_l2, bound, c.finite && c.relative_l2 <= bound};
}

void conclude(VerifyReport& report) {
  report.ok = true;
  for (const OutputReport& o : report.outputs) report.ok = report.ok && o.ok;
  for (const LayerReport& l : report.layers) {
    if (!(l.relative_l2 <= l.bound)) {
      report.sentence = cat("layer ", l.layer, " (", l.op, ") is the first to stray: relative L2 error ", l.relative_l2, ", its arithmetic allows ", l.bound);
      report.ok = false;
      return;
    }
  }
  for (const OutputReport& o : report.outputs) {
    if (o.ok) continue;
    report.sentence = std::isfinite(o.relative_l2)
                          ? cat("output '", o.name, "' is off: relative L2 error ", o.relative_l2, ", its arithmetic allows ", o.bound)
                          : cat("output '", o.name, "' holds NaN or Inf");
    return;
  }
  report.sentence = "within the bounds of its arithmetic";
}

}  // namespace

Closeness compare(const std::vector<double>& got, const std::vector<double>& want, int64_t samples) {
  Closeness c{.cosine_mean = 0, .cosine_worst = 1};
  const size_t n = samples > 0 ? want.size() / static_cast<size_t>(samples) : 0;
  double error = 0, size = 0;
  for (int64_t s = 0; s < samples; ++s) {
    double gw = 0, gg = 0, ww = 0;
    for (size_t i = static_cast<size_t>(s) * n; i < (static_cast<size_t>(s) + 1) * n; ++i) {
      gw += got[i] * want[i];
      gg += got[i] * got[i];
      ww += want[i] * want[i];
      error += (got[i] - want[i]) * (got[i] - want[i]);
    }
    size += ww;
    const double cosine = gg > 0 && ww > 0 ? gw / std::sqrt(gg * ww) : (gg == ww ? 1.0 : 0.0);
    c.cosine_mean += cosine / static_cast<double>(samples);
    if (!(cosine >= c.cosine_worst)) c.cosine_worst = cosine;
    if (!std::isfinite(gg)) c.finite = false;
  }
  c.relative_l2 = size > 0 ? std::sqrt(error / size) : std::sqrt(error);
  return c;
}

Result<Golden> make_golden(const Engine& engine, uint64_t seed) {
  const Plan* golden = golden_plan(engine);
  TS_CHECK(golden != nullptr, "an engine's last plan is its golden plan");
  const Samples samples = random_samples(*golden, golden->batch, seed);
  TS_ASSIGN(const GoldenRun clean, run_plan(engine, *golden, samples, false, nullptr));
  const std::vector<double> noise = noise_of_steps(engine.plans[0]);
  if (noise.size() != golden->steps.size()) return machine_error("internal: the golden plan does not mirror the engine's plan");
  TS_ASSIGN(const GoldenRun noisy, run_plan(engine, *golden, samples, false, &noise));
  Golden g;
  for (size_t i = 0; i < golden->inputs.size(); ++i) {
    const Operand& d = golden->tensors[static_cast<size_t>(golden->inputs[i].tensor)].desc;
    g.inputs.push_back({golden->inputs[i].name, d.shape, d.type, samples.data[i]});
  }
  for (size_t i = 0; i < golden->outputs.size(); ++i) {
    const Operand& d = golden->tensors[static_cast<size_t>(golden->outputs[i].tensor)].desc;
    Buffer b(static_cast<size_t>(packed_bytes(d.type.element, elements(d.shape))));
    info(d.type.element).encode_f64(clean.outputs[i].data(), static_cast<int64_t>(clean.outputs[i].size()), b.data(), 0);
    g.outputs.push_back({golden->outputs[i].name, d.shape, d.type, Bytes::own(std::move(b))});
    for (double x : clean.outputs[i]) {
      if (!std::isfinite(x)) return Status(Code::kVerifyFailed, cat("output '", golden->outputs[i].name, "' of the golden run is not finite"));
    }
    g.bounds.push_back(bound_from(noisy.outputs[i], clean.outputs[i], golden->batch));
  }
  return g;
}

Result<VerifyReport> check_golden(const Engine& engine, const Plan& plan) {
  if (engine.golden.outputs.empty()) return bad_input("the engine holds no golden values (built with --no-verify)");
  const Golden& g = engine.golden;
  const int64_t count = g.inputs.empty() ? 1 : g.inputs[0].shape[0];
  Samples samples{.count = count, .names = {}, .data = {}};
  for (const GoldenTensor& t : g.inputs) {
    samples.names.push_back(t.name);
    samples.data.push_back(t.data);
  }
  VerifyReport report;
  TS_ASSIGN(const GoldenRun run, run_plan(engine, plan, samples, false, nullptr, &report.machine));
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    std::vector<double> want(static_cast<size_t>(elements(g.outputs[i].shape)));
    info(g.outputs[i].type.element).decode_f64(g.outputs[i].data.data(), 0, static_cast<int64_t>(want.size()), want.data());
    report.outputs.push_back(judge(g.outputs[i].name, run.outputs[i], repeat_to(want, count, plan.batch), plan.batch, g.bounds[i]));
  }
  conclude(report);
  if (!report.ok || plan.batch == 1 || count == 1) return report;
  // The first sample in other company must give the same: runs put any samples side by side.
  Samples alone{.count = 1, .names = samples.names, .data = {}};
  for (const Bytes& all : samples.data) alone.data.push_back(all.slice(0, all.size() / static_cast<size_t>(count)));
  TS_ASSIGN(const GoldenRun again, run_plan(engine, plan, alone, false, nullptr));
  for (size_t i = 0; i < again.outputs.size(); ++i) {
    const int64_t one = static_cast<int64_t>(run.outputs[i].size()) / plan.batch;
    const std::vector<double> first(run.outputs[i].begin(), run.outputs[i].begin() + static_cast<std::ptrdiff_t>(one));
    if (compare(again.outputs[i], repeat_to(first, 1, plan.batch), plan.batch).relative_l2 <= g.bounds[i]) continue;
    report.ok = false;
    report.sentence = cat("output '", g.outputs[i].name, "' of a sample depends on the other samples of its batch; only batch 1 can be built");
  }
  return report;
}

Result<VerifyReport> verify_engine(const Engine& engine, const VerifyOptions& options) {
  const Plan* golden = golden_plan(engine);
  if (golden == nullptr) return bad_input("the engine has no golden plan to compare with");
  if (options.plan >= engine.plans.size() - 1) return usage_error(cat("the engine has ", engine.plans.size() - 1, " plans"));
  const Plan& plan = engine.plans[options.plan];
  const bool layers = options.layers && info(plan.arch).device == DeviceKind::kHost;
  const Samples samples = random_samples(*golden, golden->batch, options.seed);
  TS_ASSIGN(const GoldenRun clean, run_plan(engine, *golden, samples, layers, nullptr));
  const std::vector<double> noise = noise_of_steps(plan);
  if (noise.size() != golden->steps.size()) return bad_input("the golden plan does not mirror the engine's plan");
  TS_ASSIGN(const GoldenRun noisy, run_plan(engine, *golden, samples, layers, &noise));
  VerifyReport report;
  TS_ASSIGN(const GoldenRun got, run_plan(engine, plan, samples, layers, nullptr, &report.machine));
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    const double bound = bound_from(noisy.outputs[i], clean.outputs[i], golden->batch);
    report.outputs.push_back(
        judge(plan.outputs[i].name, got.outputs[i], repeat_to(clean.outputs[i], golden->batch, plan.batch), plan.batch, bound));
  }
  for (size_t i = 0; i < got.layers.size(); ++i) {
    const Closeness c = compare(got.layers[i], repeat_to(clean.layers[i], golden->batch, plan.batch), plan.batch);
    // One rounding of the result's type may fall either way in every element.
    const Element e = plan.tensors[static_cast<size_t>(plan.steps[i].out[0])].desc.type.element;
    const double rounding = info(e).kind == ElementKind::kFloat ? std::ldexp(1.0, -info(e).mantissa_bits) * std::sqrt(typical_error(plan, plan.steps[i])) : 0;
    report.layers.push_back({plan.steps[i].layer, plan.steps[i].op, c.relative_l2, c.cosine_mean,
                             bound_from(noisy.layers[i], clean.layers[i], golden->batch) + rounding});
  }
  conclude(report);
  return report;
}

}  // namespace tessera
