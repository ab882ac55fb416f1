// SPDX-License-Identifier: Apache-2.0
#include "study/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "base/progress.h"
#include "compile/compile.h"
#include "study/golden_run.h"
#include "study/refine.h"

namespace tessera {
namespace {

OutputReport judge(const std::string& name, const std::vector<double>& got, const std::vector<double>& want,
                   int64_t samples, double bound) {
  const Closeness c = compare(got, want, samples);
  return {name, c.cosine_mean, c.cosine_worst, c.relative_l2, bound, c.finite && c.relative_l2 <= bound, c};
}

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", x);
  return text;
}

std::string stray_sentence(const LayerReport& l) {
  const std::string who = cat("layer ", l.layer, " (", l.variant, ") strays first: ");
  if (!l.finite) return cat(who, "it gives NaN or Inf where its reference gives numbers; its inputs still agree");
  if (l.one_result && l.relative_l2 <= l.bound) {
    return cat(who, "one of its results is ", brief(l.share),
               " times as far off as its arithmetic allows; its inputs still agree");
  }
  return cat(who, "relative L2 ", brief(l.relative_l2), " where its arithmetic allows ", brief(l.bound),
             "; its inputs still agree");
}

void conclude(VerifyReport& report) {
  report.ok = true;
  for (const OutputReport& o : report.outputs) report.ok = report.ok && o.ok;
  for (size_t i = 0; i < report.layers.size() && report.first_stray < 0; ++i) {
    if (!report.layers[i].ok()) report.first_stray = static_cast<int>(i);
  }
  if (report.first_stray >= 0) {
    report.ok = false;
    report.sentence = stray_sentence(report.layers[static_cast<size_t>(report.first_stray)]);
    return;
  }
  for (const OutputReport& o : report.outputs) {
    if (o.ok) continue;
    report.sentence = std::isfinite(o.relative_l2)
                          ? cat("output '", o.name, "' is off: relative L2 ", brief(o.relative_l2),
                                " where its arithmetic allows ", brief(o.bound))
                          : cat("output '", o.name, "' holds NaN or Inf");
    return;
  }
  report.sentence = report.layers.empty() ? "within the bounds of its arithmetic"
                                          : "every layer and every output is within the bounds of its arithmetic";
}

std::string depends_sentence(const std::string& output) {
  return cat("output '", output, "' of a sample depends on the other samples of its batch; only batch 1 can be built");
}

// What one plan gave over all samples, beside what the golden plan gave: clean, and with noise of this plan's
// arithmetic.
struct Gathered {
  const Plan* plan;
  std::vector<double> noise;
  LayerJudge judge;
  Outputs64 got, want, clean, noisy;
  int64_t rows = 0, golden_rows = 0;
  VerifyReport report;
};

void append(Outputs64& to, size_t port, const std::vector<double>& numbers) {
  if (to.size() <= port) to.resize(port + 1);
  to[port].insert(to[port].end(), numbers.begin(), numbers.end());
}

Result<Samples> samples_asked(const Plan& golden, const VerifyOptions& options) {
  const int64_t wanted = options.samples > 0 ? options.samples : golden.batch;
  if (options.inputs.empty()) return random_samples(golden, wanted, options.seed, options.kind);
  TS_ASSIGN(const Samples samples, read_samples(golden, options.inputs));
  if (options.samples > samples.count)
    return usage_error(cat("--samples ", options.samples, ": ", options.inputs, " holds ", samples.count));
  return samples.part(0, std::min(samples.count, wanted));
}

}  // namespace

Status check_samples_alone(const Graph& graph, uint64_t seed) {
  if (batch_of(graph) < 2) return {};
  Engine engine;
  ConstantPool pool(engine.constants);
  TS_ASSIGN(const Plan plan, lower_in_f32(graph, pool));
  const Samples samples = random_samples(plan, plan.batch, seed);
  TS_ASSIGN(const Outputs64 together, run_plan(engine, plan, samples));
  for (int64_t which : {0, 1}) {
    TS_ASSIGN(const Outputs64 alone, run_plan(engine, plan, samples.part(which, 1)));
    for (size_t i = 0; i < alone.size(); ++i) {
      const std::vector<double> before = repeat_to(together[i], plan.batch, which, 1, plan.batch);
      // Roundings of f32 are far below, another sample's numbers far above.
      if (compare(alone[i], before, plan.batch).relative_l2 > 1e-3)
        return {Code::kVerifyFailed, depends_sentence(plan.outputs[i].name)};
    }
  }
  return {};
}

Samples golden_samples(const Engine& engine) {
  const Golden& g = engine.golden;
  Samples samples{.count = g.inputs.empty() ? 1 : g.inputs[0].shape[0], .names = {}, .data = {}};
  for (const GoldenTensor& t : g.inputs) {
    const size_t i = samples.names.size();
    samples.names.push_back(t.name);
    samples.data.push_back(t.data);
    // (check_engine: a port of f32 may have its golden input in f16.)
    const Plan& plan = engine.plans.back();
    if (t.type == plan.tensors[static_cast<size_t>(plan.inputs[i].tensor)].desc.type) continue;
    Buffer wide(static_cast<size_t>(elements(t.shape)) * sizeof(float));
    info(t.type.element).decode(t.data.data(), 0, elements(t.shape), reinterpret_cast<float*>(wide.data()));
    samples.data.back() = Bytes::own(std::move(wide));
  }
  return samples;
}

Result<QuantizationReport> measure_quantization(const Engine& engine, const Twin* twin, const VerifyOptions& options) {
  const Plan* golden = golden_plan(engine);
  if (golden == nullptr) return bad_input("the engine has no golden plan to compare with");
  QuantizationReport report;
  Samples samples;
  if (twin == nullptr) {
    if (engine.golden.outputs.empty()) return bad_input("the engine holds no golden values (built with --no-verify)");
    samples = golden_samples(engine).repeated(golden->batch);
    report.what = "golden inputs";
    report.fitting = true;
    report.outputs = stored_quality(engine.golden);
  } else {
    TS_ASSIGN(samples, samples_asked(*golden, options));
    report.fitting = !options.inputs.empty();
    report.what = options.inputs.empty() ? cat(name_of(options.kind), ", seed ", options.seed)
                                         : options.inputs.substr(options.inputs.rfind('/') + 1);
    if (twin->plan().batch != golden->batch) {
      return bad_input(
          cat("the model has a batch of ", twin->plan().batch, ", the engine's golden plan ", golden->batch));
    }
  }
  QuantizationJudge judge(engine, *golden, twin, dividing_layers(engine.refinements));
  ExecutorOptions watching;
  watching.observe = [&](const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
    judge.see(step, in, out);
  };
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("quantization error", divide_up(samples.count, golden->batch));
  for (int64_t first = 0; first < samples.count; first += golden->batch) {
    const Samples group = samples.part(first, std::min(golden->batch, samples.count - first));
    TwinRun f32;
    if (twin != nullptr) {
      TS_ASSIGN(f32, run_twin(*twin, group, judge.wanted()));
      judge.hold_against(&f32);
    }
    TS_ASSIGN(const Outputs64 got, run_plan(engine, *golden, group, watching));
    for (size_t i = 0; twin != nullptr && i < got.size(); ++i) {
      const auto n = static_cast<std::ptrdiff_t>(got[i].size() / static_cast<size_t>(golden->batch) *
                                                 static_cast<size_t>(group.count));
      const auto first_of = [&](const std::vector<double>& all) { return std::span(all.begin(), all.begin() + n); };
      const OutputQuality q = output_quality(*golden, i, first_of(got[i]), first_of(f32.outputs[i]), group.count);
      if (report.outputs.size() <= i) report.outputs.push_back({.name = q.name, .closeness = {}});
      OutputQuality& all = report.outputs[i];
      all.closeness.add(q.closeness);
      if (q.whole) {
        const Agreement before = all.whole.value_or(Agreement{});
        all.whole = Agreement{.same = before.same + q.whole->same, .all = before.all + q.whole->all};
      }
    }
    if (progress) progress->advance();
  }
  report.layers = judge.reports();
  // Weights that were refined are not the model's; they were judged at build, beside those that quantize was given.
  for (LayerQuality& q : report.layers) {
    if (twin == nullptr || engine.refinements.empty()) break;
    std::erase_if(q.found, [](const Finding& f) { return f.of_weight; });
    q.weight_error = 0;
  }
  constexpr size_t kMost = 5;
  report.faults = sentences_of(report.layers, true, kMost);
  report.notes = sentences_of(report.layers, false, kMost);
  if (const std::string left_out = judge.left_out(); !left_out.empty()) report.notes.push_back(left_out);
  return report;
}

Result<VerifyReport> check_golden(const Engine& engine, const Plan& plan) {
  if (engine.golden.outputs.empty()) return bad_input("the engine holds no golden values (built with --no-verify)");
  const Golden& g = engine.golden;
  const Samples samples = golden_samples(engine);
  const int64_t count = samples.count;
  VerifyReport report;
  report.plan = plan.name;
  TS_ASSIGN(const Outputs64 run, run_plan(engine, plan, samples, {}, &report.machine));
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    std::vector<double> want(static_cast<size_t>(elements(g.outputs[i].shape)));
    info(g.outputs[i].type.element)
        .decode_f64(g.outputs[i].data.data(), 0, static_cast<int64_t>(want.size()), want.data());
    report.outputs.push_back(
        judge(g.outputs[i].name, run[i], repeat_to(want, count, 0, count, plan.batch), plan.batch, g.bounds[i]));
  }
  conclude(report);
  if (!report.ok || plan.batch == 1 || count == 1) return report;
  // A sample in other company must give the same: runs put any samples side by side. The first alone shows whether it reads the others, the second
  // whether it reads the first.
  for (int64_t which : {0, 1}) {
    TS_ASSIGN(const Outputs64 again, run_plan(engine, plan, samples.part(which, 1)));
    for (size_t i = 0; i < again.size(); ++i) {
      const std::vector<double> before = repeat_to(run[i], plan.batch, which, 1, plan.batch);
      if (compare(again[i], before, plan.batch).relative_l2 <= g.bounds[i]) continue;
      report.ok = false;
      report.sentence = depends_sentence(g.outputs[i].name);
    }
  }
  return report;
}

Result<std::vector<VerifyReport>> verify_plans(const Engine& engine, const VerifyOptions& options) {
  const Plan* golden = golden_plan(engine);
  if (golden == nullptr) return bad_input("the engine has no golden plan to compare with");
  std::vector<Gathered> all;
  std::string names;
  int64_t runs = 0;  // of every plan, per group of samples
  for (const Plan& plan : engine.plans) {
    if (&plan == golden) continue;
    names += (names.empty() ? "" : ", ") + plan.name;
    if (!options.plan.empty() && plan.name != options.plan) continue;
    TS_ASSIGN(LayerJudge judge, LayerJudge::make(engine, plan, *golden));
    Gathered g{.plan = &plan,
               .noise = noise_of_steps(plan),
               .judge = std::move(judge),
               .got = {},
               .want = {},
               .clean = {},
               .noisy = {},
               .report = {}};
    g.report.plan = plan.name;
    if (!options.layers) g.report.layers_note = "only outputs are compared, as asked";
    runs += divide_up(golden->batch, plan.batch);
    all.push_back(std::move(g));
  }
  if (all.empty()) return usage_error(cat("no plan is called '", options.plan, "'; there are ", names));
  TS_ASSIGN(const Samples samples, samples_asked(*golden, options));
  std::optional<Progress> progress;
  const int64_t steps = static_cast<int64_t>(golden->steps.size());
  if (!options.quiet) progress.emplace("verifying", divide_up(samples.count, golden->batch) * steps * (2 + runs));
  Progress* bar = progress ? &*progress : nullptr;
  ExecutorOptions counting;
  counting.observe = [bar](const PlanStep&, std::span<const TensorView>, std::span<const TensorView>) {
    if (bar != nullptr) bar->advance();
  };
  for (int64_t first = 0; first < samples.count; first += golden->batch) {
    const Samples group = samples.part(first, std::min(golden->batch, samples.count - first));
    TS_ASSIGN(const Outputs64 clean, run_plan(engine, *golden, group, counting));
    std::map<std::vector<double>, Outputs64> noisy;  // plans of one target have the same arithmetic
    for (Gathered& g : all) {
      if (!noisy.contains(g.noise)) {
        TS_ASSIGN(noisy[g.noise], run_noisy(engine, *golden, group, g.noise, clean, bar));
      }
      for (size_t i = 0; i < clean.size(); ++i) append(g.clean, i, clean[i]), append(g.noisy, i, noisy[g.noise][i]);
      g.golden_rows += golden->batch;
      const Plan& plan = *g.plan;
      ExecutorOptions watching;
      watching.observe = [&](const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
        if (g.report.layers_note.empty()) g.judge.see(step, in, out);
        if (bar != nullptr) bar->advance();
      };
      if (!g.report.layers_note.empty() && info(plan.arch).device != DeviceKind::kHost)
        watching = {};  // one graph is faster
      for (int64_t s = 0; s < group.count; s += plan.batch) {
        const int64_t here = std::min(plan.batch, group.count - s);
        TS_ASSIGN(const Outputs64 got, run_plan(engine, plan, group.part(s, here), watching, &g.report.machine));
        TS_TRY(g.judge.status());
        for (size_t i = 0; i < got.size(); ++i) {
          append(g.got, i, got[i]);
          append(g.want, i, repeat_to(clean[i], golden->batch, s, here, plan.batch));
        }
        g.rows += plan.batch;
      }
    }
  }
  std::vector<VerifyReport> reports;
  for (Gathered& g : all) {
    for (size_t i = 0; i < g.got.size(); ++i) {
      const double bound = bound_from(g.noisy[i], g.clean[i], g.golden_rows);
      g.report.outputs.push_back(judge(g.plan->outputs[i].name, g.got[i], g.want[i], g.rows, bound));
    }
    if (g.report.layers_note.empty()) g.report.layers = g.judge.reports();
    conclude(g.report);
    reports.push_back(std::move(g.report));
  }
  return reports;
}

Result<VerifyReport> verify_engine(const Engine& engine, const VerifyOptions& options) {
  VerifyOptions first = options;
  if (first.plan.empty() && !engine.plans.empty()) first.plan = engine.plans[0].name;
  TS_ASSIGN(std::vector<VerifyReport> reports, verify_plans(engine, first));
  return std::move(reports[0]);
}

}  // namespace tessera
