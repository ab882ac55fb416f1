// SPDX-License-Identifier: Apache-2.0
#include "verify/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/progress.h"
#include "golden/golden_run.h"
#include "golden/golden_values.h"
#include "inputs/image_samples.h"
#include "ir/layer_ops.h"
#include "op/op.h"
#include "ops/matmul/matmul.h"
#include "plan/golden_plans.h"
#include "verify/f32_model.h"
#include "verify/model_as_written.h"
#include "verify/rounded_weights.h"
#include "verify/validate/validate_plan.h"

namespace tessera {
namespace {

// A node that a pass recognised was a few nodes before, each with its own rounding to f32: as many halves of a unit.
constexpr double kSpeltOut = 8;
// Numbers of a pattern that an exporter rounded to 16 bits: a GELU has two.
constexpr double kNumbersOfPattern = 2;
// Which of two equal scores is the larger is chance, in f32 too: 98.6 of a hundred whole numbers must be the same.
constexpr double kLeastOfPasses = 0.9999;
constexpr size_t kMostSentences = 3;
constexpr const char* kOurFault = "; this is a fault of tessera, not of the precision";

constexpr const char* kRandomScales = "activation scales were taken from random inputs (--calib FILE brings data)";

constexpr const char* kRandomInputs =
    "scales were judged on random golden inputs, not on samples (--golden-inputs FILE brings some)";

Status failed(std::string sentence) { return {Code::kVerifyFailed, std::move(sentence)}; }

std::string number(const char* format, double x) {
  char text[32];
  std::snprintf(text, sizeof(text), format, x);
  return text;
}

bool is_integer(const Operand& o) { return info(o.type.element).kind == ElementKind::kInteger; }

const Operand& port_desc(const Plan& plan, const Port& port) {
  return plan.tensors[static_cast<size_t>(port.tensor)].desc;
}

bool all_finite(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
}

// The first question: passes change where roundings fall, and nothing else.
Status check_passes(const F32Model& f32_model, const Outputs64& f32, const Outputs64& written, const Samples& samples,
                    double coarseness, ModelReport& report) {
  std::vector<double> noise = noise_of_steps(f32_model.plan());
  for (double& n : noise) {
    if (n > 0) n += kSpeltOut * 0x1p-24 + kNumbersOfPattern * coarseness;
  }
  TS_ASSIGN(const Outputs64 noisy, run_noisy(f32_model.engine, f32_model.reference(), samples, noise, f32, nullptr));
  const Plan& plan = f32_model.plan();
  for (size_t i = 0; i < written.size(); ++i) {
    const std::string& name = plan.outputs[i].name;
    if (f32[i].size() != written[i].size()) {
      return failed(cat("the passes changed the model: output '", name, "' has ", f32[i].size(), " numbers, ",
                        written[i].size(), " as written"));
    }
    const Closeness c = compare(f32[i], written[i], plan.batch);
    const double bound = bound_from(noisy[i], f32[i], plan.batch);
    report.passes.push_back({name, c});
    report.pass_bounds.push_back(bound);
    if (!all_finite(written[i])) {
      return failed(cat("the model as written gives NaN or Inf in output '", name, "' on the golden inputs (",
                        "--golden-inputs FILE.npz brings inputs of its own kind)"));
    }
    if (is_integer(port_desc(plan, plan.outputs[i]))) {
      const Agreement a = count_same(f32[i], written[i]);
      report.passes.back().whole = a;
      if (agrees(a, kLeastOfPasses)) continue;
      return failed(cat("the passes changed the model: in f32, ", a.same, " of the ", a.all, " whole numbers of",
                        " output '", name, "' of the recognised graph are those of the model as written", kOurFault));
    }
    if (!(c.relative_l2 <= bound) || !c.finite) {
      return failed(cat("the passes changed the model: in f32, output '", name, "' of the recognised graph is ",
                        number("%.1e", c.relative_l2), " (relative L2) from the model as written, where roundings of ",
                        "f32 explain ", number("%.1e", bound), kOurFault));
    }
  }
  return {};
}

std::vector<GoldenTensor> as_golden(const Plan& plan, const Outputs64& numbers) {
  std::vector<GoldenTensor> out;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const Operand& d = port_desc(plan, plan.outputs[i]);
    Buffer b(static_cast<size_t>(packed_bytes(d.type.element, elements(d.shape))));
    info(d.type.element).encode_f64(numbers[i].data(), static_cast<int64_t>(numbers[i].size()), b.data(), 0);
    out.push_back({plan.outputs[i].name, d.shape, d.type, Bytes::own(std::move(b))});
  }
  return out;
}

// "on the golden inputs output 'logits' has cosine 0.99": what the gate found no fault with.
std::string outputs_in_words(const std::vector<OutputQuality>& outputs) {
  std::string text = "on the golden inputs";
  for (const OutputQuality& o : outputs) {
    text += cat(&o == &outputs.front() ? " " : ", ", "output '", o.name, "' has ",
                o.whole             ? cat(o.whole->same, " of ", o.whole->all, " whole numbers of the model as written")
                : o.closeness.alone ? "one number, which no cosine judges"
                                    : "cosine " + number("%.5f", o.closeness.cosine_mean));
  }
  return text;
}

std::string samples_in_words(const ModelReport& report) {
  return cat("on ", report.samples, report.samples == 1 ? " sample" : " samples",
             " of --calib the quantized model has mean cosine ", number("%.5f", report.on_samples.cosine_mean),
             " with the model in fp32");
}

bool blames_scales(const LayerQuality& layer) {
  return std::any_of(layer.found.begin(), layer.found.end(), [](const Finding& f) { return f.of_calibration; });
}

// The second question: layers and scales that are wrong whatever comes out, then the gate.
Status check_precision(const Plan& golden, const Outputs64& clean, const Outputs64& written,
                       const GoldenOptions& options, ModelReport& report) {
  for (size_t i = 0; i < clean.size(); ++i) {
    report.outputs.push_back(output_quality(golden, i, clean[i], written[i], golden.batch));
  }
  const std::vector<std::string> faults = sentences_of(report.layers, true, kMostSentences);
  report.warnings = sentences_of(report.layers, false, kMostSentences);
  const bool blamed = std::any_of(report.layers.begin(), report.layers.end(), blames_scales),
             by_chance = options.random_scales && blamed;
  if (by_chance) report.warnings.push_back(kRandomScales);
  if (blamed && !by_chance && options.inputs.empty()) report.warnings.push_back(kRandomInputs);
  std::string gate = gate_sentence(report.outputs, report.min_cosine);
  if (const std::string on_samples = samples_gate_sentence(report);
      !on_samples.empty() || (!gate.empty() && report.samples > 0)) {
    // Both are named: which of the two is below the gate says how much it depends on the samples.
    gate = cat(gate.empty() ? outputs_in_words(report.outputs) : gate, "; ",
               on_samples.empty() ? samples_in_words(report) : on_samples);
  }
  if (gate.empty() && faults.empty()) return {};
  std::string text = gate;
  for (const std::string& s : faults.empty() ? report.warnings : faults) text += (text.empty() ? "" : "; ") + s;
  if (by_chance && !faults.empty()) text += cat("; ", kRandomScales);
  if (!gate.empty()) text += cat("; the layers that add most error: ", worst_layers(report.layers, kMostSentences));
  if (options.inputs.empty()) text += "; the golden inputs are random numbers (--golden-inputs FILE.npz brings others)";
  return failed(text);
}

// A golden run that is not finite: the first layer that is not, if a layer can be named.
std::string not_finite(const std::string& output, const std::vector<LayerQuality>& layers) {
  for (const LayerQuality& q : layers) {
    if (q.compared && !q.closeness.finite) return cat("layer ", q.layer, " of the golden run gives NaN or Inf");
  }
  return cat("output '", output, "' of the golden run is not finite");
}

// Golden inputs are numbers that 16 bits hold, where they can be: half of the bytes in the engine, and as good as any.
void round_to_f16(const Plan& golden, Samples& samples) {
  for (size_t i = 0; i < samples.data.size(); ++i) {
    if (port_desc(golden, golden.inputs[i]).type != QuantType(Element::f32)) continue;
    const int64_t n = static_cast<int64_t>(samples.data[i].size() / sizeof(float));
    std::vector<float> numbers(static_cast<size_t>(n));
    std::memcpy(numbers.data(), samples.data[i].data(), samples.data[i].size());
    if (std::any_of(numbers.begin(), numbers.end(), [](float x) { return !(std::fabs(x) <= info(Element::f16).max); }))
      continue;
    Buffer halves(static_cast<size_t>(2 * n)), rounded(samples.data[i].size());
    info(Element::f16).encode(numbers.data(), n, halves.data(), 0);
    info(Element::f16).decode(halves.data(), 0, n, reinterpret_cast<float*>(rounded.data()));
    samples.data[i] = Bytes::own(std::move(rounded));
  }
}

// In f16 where that holds them exactly.
GoldenTensor stored_input(const std::string& name, const Operand& port, const Bytes& data) {
  GoldenTensor stored{name, port.shape, port.type, data};
  if (port.type != QuantType(Element::f32)) return stored;
  const int64_t n = elements(port.shape);
  Buffer halves(static_cast<size_t>(2 * n));
  std::vector<float> numbers(static_cast<size_t>(n)), back(static_cast<size_t>(n));
  std::memcpy(numbers.data(), data.data(), data.size());
  info(Element::f16).encode(numbers.data(), n, halves.data(), 0);
  info(Element::f16).decode(halves.data(), 0, n, back.data());
  if (numbers != back) return stored;
  stored.type = Element::f16;
  stored.data = Bytes::own(std::move(halves));
  return stored;
}

Result<Samples> read_golden_inputs(const Plan& golden, int64_t count, const GoldenOptions& options, std::string& from) {
  from = cat("seed ", options.seed);
  if (options.inputs.empty()) return random_samples(golden, count, options.seed);
  Samples samples;
  std::error_code none;
  if (std::filesystem::is_directory(options.inputs, none)) {
    TS_ASSIGN(ImageSamples images,
              read_image_samples(golden, options.inputs, options.preprocess, count, /*quiet=*/true));
    samples = std::move(images.samples);
  } else {
    TS_ASSIGN(samples, read_samples(golden, options.inputs, options.shapes));
  }
  samples = samples.part(0, std::min(samples.count, count));
  const std::string faulty = non_finite_inputs(golden, samples);
  if (!faulty.empty()) return bad_input(cat(options.inputs, ": ", faulty, "; golden inputs must be finite"));
  from = cat(samples.count, samples.count == 1 ? " sample of " : " samples of ",
             std::filesystem::path(options.inputs).filename().string());
  return samples.repeated(count);
}

// The first and second question: the passes, then the golden plan itself. Returns the outputs of the model as written.
Result<Outputs64> check_model(const Engine& engine, const Plan& golden, const Samples& samples,
                              const ModelGraphs& model, const F32Model& f32_model, const F32Run& f32,
                              ModelReport& report) {
  TS_ASSIGN(Outputs64 written, run_as_written(*model.written, samples));
  if (const std::string foreign = foreign_activation(*model.written, *model.canonical); !foreign.empty())
    return failed(cat("the passes changed the model: ", foreign, kOurFault));
  const double coarseness = coarseness_of(*model.written);
  if (rounds_weights(*model.canonical)) {
    TS_ASSIGN(const F32Model canonical, make_f32_model(with_plain_attention(*model.canonical)));
    TS_ASSIGN(const Outputs64 outputs, run_plan(canonical.engine, canonical.plan(), samples));
    TS_ASSIGN(const Outputs64 plain, run_as_written(without_rounded_weights(*model.written), samples));
    TS_TRY(check_passes(canonical, outputs, plain, samples, coarseness, report));
  } else if (model.prepared == model.canonical) {
    TS_TRY(check_passes(f32_model, f32.outputs, written, samples, coarseness, report));
  } else {
    TS_ASSIGN(const F32Model canonical, make_f32_model(*model.canonical));
    TS_ASSIGN(const Outputs64 outputs, run_plan(canonical.engine, canonical.plan(), samples));
    TS_TRY(check_passes(canonical, outputs, written, samples, coarseness, report));
  }
  TS_TRY(check_plan(engine.constants, golden, *model.prepared, {.ranges = model.ranges}, &report.validated));
  return written;
}

}  // namespace

OutputQuality output_quality(const Plan& golden, size_t output, std::span<const double> got,
                             std::span<const double> want, int64_t samples) {
  OutputQuality q{.name = golden.outputs[output].name, .closeness = compare(got, want, samples)};
  if (is_integer(port_desc(golden, golden.outputs[output]))) q.whole = count_same(got, want);
  return q;
}

double default_min_cosine(const Plan& golden) {
  double gate = 0.9999;
  for (const PlanStep& s : golden.steps) {
    if (!multiplies_weights(s.op) && s.op != "attention") continue;
    if (s.attrs.integer(kSparse24, 0) != 0) gate = std::min(gate, 0.5);
    for (const int t : s.in) {
      if (t < 0) continue;
      const QuantType& type = golden.tensors[static_cast<size_t>(t)].desc.type;
      const ElementInfo& e = info(type.element);
      if (e.kind == ElementKind::kInteger && !type.scaled()) continue;  // lengths: counts, not codes
      if (e.kind == ElementKind::kInteger) {
        gate = std::min(gate, e.bits <= 4 ? 0.8 : 0.95);
      } else {
        gate = std::min(gate, e.mantissa_bits >= 23   ? 0.9999
                              : e.mantissa_bits >= 10 ? 0.999
                              : e.mantissa_bits >= 7  ? 0.99
                              : e.mantissa_bits >= 2  ? 0.95
                                                      : 0.8);
      }
    }
  }
  return gate;
}

std::string gate_sentence(const std::vector<OutputQuality>& outputs, double min_cosine) {
  std::string text;
  for (const OutputQuality& o : outputs) {
    if (o.whole) {
      if (agrees(*o.whole, min_cosine)) continue;
      text += cat(text.empty() ? "" : "; ", "output '", o.name, "' of the quantized model has ", o.whole->same, " of ",
                  o.whole->all, " whole numbers of the model as written, too few for a cosine of ",
                  number("%.6g", min_cosine), " (--min-cosine)");
      continue;
    }
    const Closeness& c = o.closeness;
    // The cosine does not see a common factor; a distance that the gate's angle cannot explain is one.
    const double reach = 3 * std::sqrt(std::max(0.0, 2 * (1 - min_cosine)));
    if (c.finite && c.alone) continue;
    if (c.finite && c.cosine_mean >= min_cosine && !(c.relative_l2 > reach)) continue;
    text += cat(text.empty() ? "" : "; ", "output '", o.name, "' of the quantized model has cosine ",
                number("%.5f", c.cosine_mean), " (relative L2 ", number("%.2g", c.relative_l2),
                ") with the model as written, where ", number("%.6g", min_cosine), " is the least (--min-cosine)");
  }
  return text;
}

std::string samples_gate_sentence(const ModelReport& report) {
  if (report.samples == 0 || (report.on_samples.finite && report.on_samples.cosine_mean >= report.min_cosine))
    return "";
  return cat(samples_in_words(report), ", where ", number("%.6g", report.min_cosine), " is the least (--min-cosine)");
}

std::vector<OutputQuality> stored_quality(const Golden& golden, const GoldenForm& form) {
  std::vector<OutputQuality> out;
  const std::vector<GoldenTensor>& original = original_of(golden, form);
  for (size_t i = 0; i < original.size() && i < form.outputs.size(); ++i) {
    const GoldenTensor &got = form.outputs[i], &want = original[i];
    if (elements(got.shape) > elements(want.shape)) continue;  // (check_engine: of the first samples, and as large)
    const int64_t n = elements(got.shape);
    std::vector<double> g(static_cast<size_t>(n)), w(static_cast<size_t>(n));
    info(got.type.element).decode_f64(got.data.data(), 0, n, g.data());
    info(want.type.element).decode_f64(want.data.data(), 0, n, w.data());
    out.push_back({got.name, compare(g, w, got.shape[0])});
    if (info(got.type.element).kind == ElementKind::kInteger) out.back().whole = count_same(g, w);
  }
  return out;
}

Result<GoldenInputs> golden_inputs(const Plan& golden, int64_t count, const GoldenOptions& options) {
  GoldenInputs inputs;
  TS_ASSIGN(inputs.samples, read_golden_inputs(golden, count, options, inputs.from));
  round_to_f16(golden, inputs.samples);
  return inputs;
}

Result<Outputs64> judge_golden(const Engine& engine, const Plan& golden, const GoldenInputs& inputs,
                               const GoldenOptions& options, const ModelGraphs* model, ModelReport& report) {
  const Samples samples = inputs.samples.part(0, golden.batch);
  report.min_cosine = options.min_cosine.value_or(default_min_cosine(golden));
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("judging", static_cast<int64_t>(golden.steps.size()));
  std::optional<F32Model> f32_model;
  if (model != nullptr) {
    TS_ASSIGN(f32_model, make_f32_model(*model->prepared));
  }
  QuantizationJudge judge(engine, golden, f32_model ? &*f32_model : nullptr);
  F32Run f32;
  Outputs64 written;
  if (model != nullptr) {
    TS_ASSIGN(f32, run_f32_model(*f32_model, samples, judge.wanted()));
    judge.hold_against(&f32);
    TS_ASSIGN(written, check_model(engine, golden, samples, *model, *f32_model, f32, report));
  }
  ExecutorOptions watching;
  watching.observe = [&](const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
    if (f32_model) judge.see(step, in, out);
    if (progress) progress->advance();
  };
  TS_ASSIGN(const Outputs64 clean, run_plan(engine, golden, samples, watching));
  for (size_t i = 0; i < clean.size(); ++i) {
    if (!all_finite(clean[i])) return failed(not_finite(golden.outputs[i].name, judge.reports()));
  }
  if (model == nullptr) return written;
  report.layers = judge.reports();
  TS_TRY(check_precision(golden, clean, written, options, report));
  return written;
}

Golden begin_golden(const Plan& golden, const GoldenInputs& inputs, const Outputs64& written) {
  Golden g;
  g.from = inputs.from;
  for (size_t i = 0; i < golden.inputs.size(); ++i) {
    const Operand& d = port_desc(golden, golden.inputs[i]);
    g.inputs.push_back(stored_input(golden.inputs[i].name, d, inputs.samples.data[i]));
  }
  if (!written.empty()) g.original = as_golden(golden, written);
  return g;
}

Result<GoldenForm> make_form(const Engine& engine, const Plan& golden, const GoldenInputs& inputs, bool quiet) {
  std::optional<Progress> progress;
  if (!quiet) progress.emplace("golden values", 2 * static_cast<int64_t>(golden.steps.size()));
  TS_ASSIGN(GoldenTruth truth, run_golden(engine, plans_of(engine, golden), golden,
                                          inputs.samples.part(0, golden.batch), progress ? &*progress : nullptr));
  return GoldenForm{.plan = golden.name,
                    .outputs = as_golden(golden, truth.outputs),
                    .bounds = std::move(truth.bounds),
                    .values = std::move(truth.values)};
}

Result<Golden> make_golden(const Engine& engine, const GoldenOptions& options, const ModelGraphs* model,
                           ModelReport* report) {
  const Plan* golden = golden_plan(engine);
  TS_CHECK(golden != nullptr, "the engine has a golden plan");
  ModelReport unused;
  ModelReport& r = report != nullptr ? *report : unused;
  TS_ASSIGN(const GoldenInputs inputs, golden_inputs(*golden, golden->batch, options));
  TS_ASSIGN(const Outputs64 written, judge_golden(engine, *golden, inputs, options, model, r));
  Golden g = begin_golden(*golden, inputs, written);
  if (model != nullptr) g.min_cosine = r.min_cosine;
  TS_ASSIGN(GoldenForm form, make_form(engine, *golden, inputs, options.quiet));
  g.forms.push_back(std::move(form));
  return g;
}

}  // namespace tessera
