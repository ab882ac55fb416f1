// SPDX-License-Identifier: Apache-2.0
#include "study/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "base/log.h"
#include "base/progress.h"
#include "ops/errors.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

// An engine may be this many times as far from the golden values as the golden plan's own response to noise of its
// arithmetic's size: one draw of the noise estimates the scale of the error, it does not bound it.
constexpr double kResponseMultiple = 4;
// Outputs are f32: two roundings of them are never an error.
constexpr double kFloor = 0x1p-22;

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

using Outputs64 = std::vector<std::vector<double>>;  // numbers per port

// Steps of a plan and of its golden twin correspond one to one.
std::vector<double> noise_of_steps(const Plan& plan) {
  std::vector<double> noise;
  for (const PlanStep& s : plan.steps) noise.push_back(typical_error(plan, s));
  return noise;
}

Result<Outputs64> run_plan(const Engine& engine, const Plan& plan, const Samples& samples,
                           const ExecutorOptions& options = {}, std::string* machine = nullptr) {
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

// A golden run, clean or with noise on each step's results.
Result<Outputs64> run_golden(const Engine& engine, const Plan& golden, const Samples& samples,
                             const std::vector<double>* noise, Progress* progress, uint64_t run = 0) {
  ExecutorOptions options;
  if (noise != nullptr) {
    options.noise = [noise, run](const PlanStep&, size_t i) { return Noise{(*noise)[i], 0x51ed + i + (run << 32)}; };
  }
  if (progress != nullptr) {
    options.observe = [progress](const PlanStep&, std::span<const TensorView>, std::span<const TensorView>) {
      progress->advance();
    };
  }
  return run_plan(engine, golden, samples, options);
}

// Samples first ... first + count - 1 of `numbers`, which hold `batch` of them, again and again until there are
// `wanted`.
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

const Plan* golden_plan(const Engine& engine) {
  if (engine.plans.empty() || engine.plans.back().name != "golden") return nullptr;
  return &engine.plans.back();
}

// Where few numbers are rounded to codes, whether one of them falls on the other side of a boundary is a matter of luck: small models are asked several
// times. In large ones the many average out, and f64 is slow.
int noise_runs(const Plan& golden) {
  double flops = 0;
  for (const PlanStep& s : golden.steps) {
    if (const OpInfo* op = find_op(s.op); op != nullptr && op->flops != nullptr) flops += op->flops(problem_of(golden, s));
  }
  return flops < 2e9 ? 8 : 1;
}

// Of several runs with noise, per output the one that is farthest from the clean run.
Result<Outputs64> run_noisy(const Engine& engine, const Plan& golden, const Samples& samples, const std::vector<double>& noise,
                            const Outputs64& clean, Progress* progress) {
  Outputs64 farthest;
  for (int run = 0; run < noise_runs(golden); ++run) {
    TS_ASSIGN(Outputs64 out, run_golden(engine, golden, samples, &noise, run == 0 ? progress : nullptr, static_cast<uint64_t>(run)));
    if (run == 0) farthest = out;
    for (size_t i = 0; i < out.size(); ++i) {
      if (compare(out[i], clean[i], golden.batch).relative_l2 > compare(farthest[i], clean[i], golden.batch).relative_l2)
        farthest[i] = std::move(out[i]);
    }
  }
  return farthest;
}

double bound_from(const std::vector<double>& noisy, const std::vector<double>& clean, int64_t samples) {
  return kResponseMultiple * compare(noisy, clean, samples).relative_l2 + kFloor;
}

OutputReport judge(const std::string& name, const std::vector<double>& got, const std::vector<double>& want,
                   int64_t samples, double bound) {
  const Closeness c = compare(got, want, samples);
  return {name, c.cosine_mean, c.cosine_worst, c.relative_l2, bound, c.finite && c.relative_l2 <= bound};
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

Result<Golden> make_golden(const Engine& engine, uint64_t seed, bool quiet) {
  const Plan* golden = golden_plan(engine);
  TS_CHECK(golden != nullptr, "an engine's last plan is its golden plan");
  const Samples samples = random_samples(*golden, golden->batch, seed);
  const std::vector<double> noise = noise_of_steps(engine.plans[0]);
  if (noise.size() != golden->steps.size())
    return machine_error("internal: the golden plan does not mirror the engine's plan");
  std::optional<Progress> progress;
  if (!quiet) progress.emplace("golden values", 2 * static_cast<int64_t>(golden->steps.size()));
  TS_ASSIGN(const Outputs64 clean, run_golden(engine, *golden, samples, nullptr, progress ? &*progress : nullptr));
  TS_ASSIGN(const Outputs64 noisy, run_noisy(engine, *golden, samples, noise, clean, progress ? &*progress : nullptr));
  Golden g;
  for (size_t i = 0; i < golden->inputs.size(); ++i) {
    const Operand& d = golden->tensors[static_cast<size_t>(golden->inputs[i].tensor)].desc;
    g.inputs.push_back({golden->inputs[i].name, d.shape, d.type, samples.data[i]});
  }
  for (size_t i = 0; i < golden->outputs.size(); ++i) {
    const Operand& d = golden->tensors[static_cast<size_t>(golden->outputs[i].tensor)].desc;
    Buffer b(static_cast<size_t>(packed_bytes(d.type.element, elements(d.shape))));
    info(d.type.element).encode_f64(clean[i].data(), static_cast<int64_t>(clean[i].size()), b.data(), 0);
    g.outputs.push_back({golden->outputs[i].name, d.shape, d.type, Bytes::own(std::move(b))});
    for (double x : clean[i]) {
      if (!std::isfinite(x))
        return Status(Code::kVerifyFailed,
                      cat("output '", golden->outputs[i].name, "' of the golden run is not finite"));
    }
    g.bounds.push_back(bound_from(noisy[i], clean[i], golden->batch));
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
      report.sentence = cat("output '", g.outputs[i].name,
                            "' of a sample depends on the other samples of its batch; only batch 1 can be built");
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
  Samples samples;
  if (options.inputs.empty()) {
    samples = random_samples(*golden, options.samples > 0 ? options.samples : golden->batch, options.seed);
  } else {
    TS_ASSIGN(samples, read_samples(*golden, options.inputs));
    if (options.samples > samples.count) {
      return usage_error(cat("--samples ", options.samples, ": ", options.inputs, " holds ", samples.count));
    }
    samples = samples.part(0, std::min(samples.count, options.samples > 0 ? options.samples : golden->batch));
  }
  std::optional<Progress> progress;
  const int64_t steps = static_cast<int64_t>(golden->steps.size());
  if (!options.quiet) progress.emplace("verifying", divide_up(samples.count, golden->batch) * steps * (2 + runs));
  Progress* bar = progress ? &*progress : nullptr;
  for (int64_t first = 0; first < samples.count; first += golden->batch) {
    const Samples group = samples.part(first, std::min(golden->batch, samples.count - first));
    TS_ASSIGN(const Outputs64 clean, run_golden(engine, *golden, group, nullptr, bar));
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
