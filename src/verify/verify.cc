// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/progress.h"
#include "base/progress_sink.h"
#include "compile/compile.h"
#include "golden/golden_run.h"
#include "golden/golden_values.h"
#include "plan/golden_plans.h"
#include "verify/validate/validate_plan.h"

namespace tessera {
namespace {

// What one plan gave over all samples, beside the golden run in its arithmetic.
struct Gathered {
  const Plan *plan, *golden;
  LayerJudge judge;
  Outputs64 got = {}, want = {};
  std::vector<double> bounds = {};  // per output, the widest of all groups of samples
  int64_t rows = 0;
  VerifyReport report = {};

  // Of the progress, per group of samples.
  int64_t advances(bool layers) const {
    return 2 * static_cast<int64_t>(golden->steps.size()) +
           divide_up(golden->batch, plan->batch) * static_cast<int64_t>(layers ? plan->steps.size() : 0);
  }
};

void append(Outputs64& to, size_t port, const std::vector<double>& numbers) {
  if (to.size() <= port) to.resize(port + 1);
  to[port].insert(to[port].end(), numbers.begin(), numbers.end());
}

// `of`: how many the file holds; 0 where the samples are random.
Result<Samples> samples_asked(const Engine& engine, const Plan& golden, const VerifyOptions& options, int64_t& of) {
  of = 0;
  if (options.inputs.empty()) {
    Samples drawn =
        random_samples(golden, options.samples > 0 ? options.samples : golden.batch, options.seed, options.kind);
    draw_lengths(golden, drawn, options.seed);
    return drawn;
  }
  TS_ASSIGN(const Samples samples, read_samples(golden, options.inputs, {.lengths = &engine.lengths}));
  of = samples.count;
  if (options.samples > samples.count)
    return usage_error(cat("--samples ", options.samples, ": ", options.inputs, " holds ", samples.count));
  return samples.part(0, std::min(samples.count, options.samples > 0 ? options.samples : kSamplesOfFile));
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

namespace {

constexpr size_t kMostSentences = 5;

std::string names_of(const std::vector<const Plan*>& plans) {
  std::string names;
  for (const Plan* p : plans) names += (names.empty() ? "" : ", ") + p->name;
  return names;
}

// The samples to measure on, and what the report says of them.
Result<Samples> quantization_samples(const Engine& engine, const Plan& golden, const F32Model* f32_model,
                                     const VerifyOptions& options, QuantizationReport& report) {
  if (f32_model == nullptr) {
    const GoldenForm* form = golden_form(engine, golden);
    if (form == nullptr) return bad_input("the engine holds no golden values (built with --no-verify)");
    report.samples = form->samples();
    report.fitting = true;
    report.outputs = stored_quality(engine.golden, *form);
    return golden_samples(engine, golden).part(0, form->samples()).repeated(golden.batch);
  }
  TS_ASSIGN(Samples samples, samples_asked(engine, golden, options, report.of));
  report.samples = samples.count;
  report.fitting = !options.inputs.empty();
  if (f32_model->plan().batch != golden.batch) {
    return bad_input(
        cat("the model has a batch of ", f32_model->plan().batch, ", the engine's golden plan ", golden.batch));
  }
  return samples;
}

// Outputs of `count` samples, the engine's beside those of the model in f32, added to the report.
void add_outputs(const Plan& golden, const Outputs64& got, const Outputs64& want, int64_t count,
                 QuantizationReport& report) {
  for (size_t i = 0; i < got.size(); ++i) {
    const auto n =
        static_cast<std::ptrdiff_t>(got[i].size() / static_cast<size_t>(golden.batch) * static_cast<size_t>(count));
    const auto first_of = [&](const std::vector<double>& all) { return std::span(all.begin(), all.begin() + n); };
    const OutputQuality q = output_quality(golden, i, first_of(got[i]), first_of(want[i]), count);
    if (report.outputs.size() <= i) report.outputs.push_back({.name = q.name, .closeness = {}});
    OutputQuality& all = report.outputs[i];
    all.closeness.add(q.closeness);
    if (q.whole) {
      const Agreement before = all.whole.value_or(Agreement{});
      all.whole = Agreement{.same = before.same + q.whole->same, .all = before.all + q.whole->all};
    }
  }
}

// Findings that these samples cannot show.
void drop_findings(const Engine& engine, bool with_model, std::vector<LayerQuality>& layers) {
  for (LayerQuality& q : layers) {
    // Weights that were refined are not the model's; they were judged at build, beside those that quantize was given.
    if (with_model && !engine.refinements.empty()) {
      std::erase_if(q.found, [](const Finding& f) { return f.of_weight; });
      q.weight_error = 0;
    }
    // Without the model it is not known what was before a code that is the largest; here it is the amax, or next to it.
    if (!with_model && engine.golden.within_amax.value_or(false))
      std::erase_if(q.found, [](const Finding& f) { return f.of_calibration; });
  }
}

// Where a plan is not the model, in sentences.
std::vector<std::string> differences(const Engine& engine, const Plan& golden, const Graph& model) {
  std::vector<std::string> wrong = validate_plan(engine.constants, golden, model, refined_of(engine)).faults;
  for (const Plan& plan : engine.plans) {
    if (!wrong.empty() || golden_plan(engine, plan) != &golden || &plan == &golden || plan.batch != golden.batch)
      continue;
    for (const std::string& fault : validate_plan(engine.constants, plan, model, refined_of(engine)).faults)
      wrong.push_back(cat("plan ", plan.name, ": ", fault));
  }
  if (wrong.size() > kMostSentences) wrong.resize(kMostSentences);
  return wrong;
}

}  // namespace

Result<QuantizationReport> measure_quantization(const Engine& engine, const F32Model* f32_model,
                                                const VerifyOptions& options, const Plan* golden) {
  if (golden == nullptr) golden = golden_plan(engine);
  if (golden == nullptr) return bad_input("the engine has no golden plan to compare with");
  QuantizationReport report;
  report.what = f32_model == nullptr     ? "golden inputs"
                : options.inputs.empty() ? cat(name_of(options.kind), ", seed ", options.seed)
                                         : options.inputs.substr(options.inputs.rfind('/') + 1);
  if (golden_plans(engine).size() > 1) report.what += cat(" (", names_of(plans_of(engine, *golden)), ")");
  TS_ASSIGN(const Samples samples, quantization_samples(engine, *golden, f32_model, options, report));
  QuantizationJudge judge(engine, *golden, f32_model, {engine.divided_layers.begin(), engine.divided_layers.end()});
  ExecutorOptions watching;
  watching.observe = [&](const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
    judge.see(step, in, out);
  };
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("quantization error", divide_up(samples.count, golden->batch));
  for (int64_t first = 0; first < samples.count; first += golden->batch) {
    const Samples group = samples.part(first, std::min(golden->batch, samples.count - first));
    F32Run f32;
    if (f32_model != nullptr) {
      TS_ASSIGN(f32, run_f32_model(*f32_model, group, judge.wanted()));
      judge.hold_against(&f32);
    }
    TS_ASSIGN(const Outputs64 got, run_plan(engine, *golden, group, watching));
    if (f32_model != nullptr) {
      if (f32.outputs.size() != got.size())
        return bad_input(cat("the engine has ", got.size(), " outputs, the model ", f32.outputs.size()));
      add_outputs(*golden, got, f32.outputs, group.count, report);
    }
    if (progress) progress->advance();
  }
  report.layers = judge.reports();
  drop_findings(engine, f32_model != nullptr, report.layers);
  report.faults = sentences_of(report.layers, true, kMostSentences);
  if (f32_model != nullptr) {
    const std::vector<std::string> wrong = differences(engine, *golden, f32_model->graph);
    report.not_the_model = wrong.size();
    report.faults.insert(report.faults.begin(), wrong.begin(), wrong.end());
  }
  report.notes = sentences_of(report.layers, false, kMostSentences);
  if (const std::string left_out = judge.left_out(); !left_out.empty()) report.notes.push_back(left_out);
  return report;
}

namespace {

// One group of samples through one plan: free, with its layers looked at, and value by value.
Status verify_group(const Engine& engine, const Plan& golden, const Samples& group, Gathered& g, Progress* bar) {
  const Plan& plan = *g.plan;
  const Plan* const one[] = {&plan};
  TS_ASSIGN(const GoldenTruth truth, run_golden(engine, one, golden, group, bar));
  g.bounds.resize(truth.bounds.size());
  for (size_t i = 0; i < truth.bounds.size(); ++i) g.bounds[i] = std::max(g.bounds[i], truth.bounds[i]);
  ExecutorOptions watching;
  watching.observe = [&](const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
    g.judge.see(step, in, out);
    if (bar != nullptr) bar->advance();
  };
  for (int64_t s = 0; s < group.count; s += plan.batch) {
    const int64_t here = std::min(plan.batch, group.count - s);
    if (g.report.layers_note.empty()) {
      TS_TRY(run_plan(engine, plan, group.part(s, here), watching, &g.report.machine).status());
      TS_TRY(g.judge.status());
    }
    TS_ASSIGN(const ValueRun run,
              run_by_values(engine, plan, truth.values, golden.batch, group, s, here, &g.report.machine));
    for (const ValueReport& v : run.values) {
      const auto known = std::find_if(g.report.values.begin(), g.report.values.end(),
                                      [&](const ValueReport& k) { return k.name == v.name; });
      if (known == g.report.values.end()) {
        g.report.values.push_back(v);
      } else if (!v.ok() || v.relative_l2 / v.bound > known->relative_l2 / known->bound) {
        *known = v;
      }
    }
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      append(g.got, i, run.outputs[i]);
      append(g.want, i, repeat_to(truth.outputs[i], golden.batch, s, here, plan.batch));
    }
    g.rows += plan.batch;
  }
  return {};
}

}  // namespace

Result<std::vector<VerifyReport>> verify_plans(const Engine& engine, const VerifyOptions& options) {
  std::vector<Gathered> all;
  std::string names;
  if (golden_plan(engine) == nullptr) return bad_input("the engine has no golden plan to compare with");
  const auto bucket_of = [](const Plan& plan) { return std::pair(plan.graph, plan.sizes); };
  std::map<std::pair<std::string, std::map<std::string, int64_t>>, const Plan*> largest;  // golden plan of each bucket
  for (const Plan& plan : engine.plans) {
    const Plan* golden = golden_plan(engine, plan);
    if (golden == nullptr || golden == &plan) continue;
    names += (names.empty() ? "" : ", ") + plan.name;
    if (!options.plan.empty() && plan.name != options.plan) continue;
    if (!options.sizes.empty() && plan.sizes != options.sizes) continue;
    TS_ASSIGN(LayerJudge judge, LayerJudge::make(engine, plan, *golden));
    Gathered g{.plan = &plan, .golden = golden, .judge = std::move(judge)};
    g.report.plan = plan.name;
    if (!options.layers) g.report.layers_note = "only outputs are compared, as asked";
    const Plan*& known = largest[bucket_of(*golden)];
    if (known == nullptr || golden->batch > known->batch) known = golden;
    all.push_back(std::move(g));
  }
  if (all.empty() && !options.plan.empty() && !options.sizes.empty())
    return usage_error(cat("the arrays' lengths are not those of plan '", options.plan, "'"));
  if (all.empty()) return usage_error(cat("no plan is called '", options.plan, "'; there are ", names));
  int64_t of = 0;
  std::map<std::pair<std::string, std::map<std::string, int64_t>>, Samples> samples;  // of each bucket
  for (const auto& [bucket, golden] : largest) {
    TS_ASSIGN(samples[bucket], samples_asked(engine, *golden, options, of));
  }
  std::optional<Progress> progress;
  if (!options.quiet) {
    int64_t advances = 0;
    for (const Gathered& g : all)
      advances += divide_up(samples.at(bucket_of(*g.golden)).count, g.golden->batch) * g.advances(options.layers);
    progress.emplace("verifying", advances);
  }
  for (Gathered& g : all) {
    const Samples& drawn = samples.at(bucket_of(*g.golden));
    for (int64_t first = 0; first < drawn.count; first += g.golden->batch) {
      const Samples group = drawn.part(first, std::min(g.golden->batch, drawn.count - first));
      TS_TRY(check_cancelled());
      TS_TRY(verify_group(engine, *g.golden, group, g, progress ? &*progress : nullptr));
    }
  }
  std::vector<VerifyReport> reports;
  for (Gathered& g : all) {
    for (size_t i = 0; i < g.got.size(); ++i)
      g.report.outputs.push_back(judge_output(g.plan->outputs[i].name, g.got[i], g.want[i], g.rows, g.bounds[i]));
    g.report.samples = samples.at(bucket_of(*g.golden)).count, g.report.of = of;
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
