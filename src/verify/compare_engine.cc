// SPDX-License-Identifier: Apache-2.0
#include "verify/compare_engine.h"

#include <algorithm>

#include "base/log.h"
#include "base/progress_sink.h"
#include "compile/compile.h"
#include "compile/weights_checksum.h"
#include "inputs/pixel_bytes.h"
#include "plan/golden_plans.h"
#include "rewrite/byte_ports.h"
#include "runtime/batches.h"
#include "runtime/fit_lengths.h"

namespace tessera {
namespace {

// Kinds of random inputs, in order; all where none is named.
Result<std::vector<InputKind>> kinds_asked(const std::string& text) {
  if (text.empty()) return std::vector<InputKind>(std::begin(kInputKinds), std::end(kInputKinds));
  std::vector<InputKind> kinds;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto kind = find_input_kind(text.substr(at, end - at));
    if (!kind) return usage_error(cat("--kinds ", text, ": wanted some of normal, uniform, small, large, with commas"));
    if (std::find(kinds.begin(), kinds.end(), *kind) != kinds.end())
      return usage_error(cat("--kinds ", text, ": ", name_of(*kind), " stands there twice"));
    kinds.push_back(*kind);
    at = end + 1;
  }
  return kinds;
}

// Random whole numbers are the same in every kind: ids and masks have no size that a kind could change.
bool takes_integers_only(const Engine& engine) {
  return std::all_of(engine.plans.begin(), engine.plans.end(), [](const Plan& plan) {
    return !plan.inputs.empty() && std::all_of(plan.inputs.begin(), plan.inputs.end(), [&](const Port& p) {
      return info(plan.tensors[static_cast<size_t>(p.tensor)].desc.type.element).kind == ElementKind::kInteger;
    });
  });
}

// Ports of 16 bits, which states are too, and images in bytes, whose shapes become the model's own.
std::vector<PortType> port_types_of(const Plan& golden, LoadOptions& options) {
  std::vector<PortType> ports;
  for (const auto& [list, outputs] : {std::pair(&golden.inputs, false), {&golden.outputs, true}}) {
    for (const Port& p : *list) {
      const PlanTensor& t = golden.tensors[static_cast<size_t>(p.tensor)];
      const QuantType& type = t.desc.type;
      const bool state = is_state(golden, p) ||
                         std::any_of(options.states.begin(), options.states.end(), [&, out = outputs](const auto& s) {
                           return p.name == (out ? s.output : s.input);
                         });
      if (!state && t.storage != Storage::kState && (type == Element::f16 || type == Element::bf16))
        ports.push_back({p.name, type.element});
      const auto pixels = outputs ? std::nullopt : pixels_of(golden, p);
      if (!pixels) continue;
      ports.push_back({p.name, Element::u8, *pixels});
      options.shapes[p.name] = model_shape(t.desc.shape, pixels->layout);
    }
  }
  return ports;
}

// How the model was loaded that a golden plan was made of: its shapes, and its states (rewrite/keep_caches.h).
LoadOptions loading_of(const Engine& engine, const Plan& golden, const std::string& family) {
  LoadOptions options{.exact = false, .shapes = {}, .states = {}, .family = family};
  for (const Port& p : golden.inputs) options.shapes[p.name] = golden.tensors[static_cast<size_t>(p.tensor)].desc.shape;
  for (const PlanStep& s : golden.steps) {
    if (s.op != "write" || engine.states.empty()) continue;
    for (const Port& in : golden.inputs) {
      const auto out = std::find_if(golden.outputs.begin(), golden.outputs.end(),
                                    [&](const Port& p) { return p.tensor == s.out[0]; });
      if (in.tensor != s.in[0] || out == golden.outputs.end()) continue;
      const size_t axis = static_cast<size_t>(s.attrs.integer("axis"));
      const int64_t rows = golden.tensors[static_cast<size_t>(s.in[1])].desc.shape[axis];
      int64_t& all = options.shapes[in.name][axis];
      options.states.push_back({in.name, out->name});
      if (!family.empty()) options.sizes = {{"tokens", rows}, {"cache", all}};
      if (rows == all) continue;  // a state of its output's own shape
      all -= rows;                // the past without the new rows
      options.shapes.erase(kPastLength);
    }
  }
  if (family.empty() || engine.schedule.empty()) options.ports = port_types_of(golden, options);
  if (!family.empty()) options.shapes.clear(), options.states.clear();  // a family has its own
  return options;
}

// The model in f32 with a golden plan's shapes.
Result<F32Model> f32_model_of(const Engine& engine, const Plan& golden, const std::string& model,
                              const std::string& family) {
  TS_ASSIGN(const Graph graph, load_model(model, golden.batch, loading_of(engine, golden, family)));
  for (const Port& p : golden.outputs) {
    const bool there = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                   [&](ValueId id) { return graph.at(id).name == p.name; });
    if (!there) return bad_input(cat(model, ": it has no output '", p.name, "': is it the model of this engine?"));
  }
  if (const std::string sum = weights_checksum(graph); !engine.weights.empty() && sum != engine.weights)
    return bad_input(cat(model, ": its weights are not those that the engine was built from: their checksum is ", sum,
                         ", the engine's ", engine.weights));
  return make_f32_model(graph);
}

// A gate that judges nothing would pass whatever the engine is.
Status check_gate(const std::vector<Measured>& measured) {
  const bool any = std::any_of(measured.begin(), measured.end(),
                               [](const Measured& m) { return m.gated && !m.report.outputs.empty(); });
  if (any) return {};
  return usage_error(
      "--min-cosine: nothing to judge, the engine holds no outputs of its model (built with --no-verify): give the "
      "model with --model FILE");
}

std::string quantization_failure(const std::vector<Measured>& measured, std::optional<double> min_cosine) {
  for (const auto& [r, gated] : measured) {
    std::string text = min_cosine && gated ? gate_sentence(r.outputs, *min_cosine) : std::string();
    const size_t counted = r.fitting ? r.faults.size() : r.not_the_model;
    for (size_t i = 0; i < counted; ++i) text += (text.empty() ? "" : "; ") + r.faults[i];
    if (text.empty()) continue;
    const std::string worst = worst_layers(r.layers, 3);
    return cat(r.what, ": ", text, worst.empty() ? "" : "; the layers that add most error: " + worst);
  }
  return "";
}

Status compare_golden_values(const Engine& engine, const ComparisonOptions& o, Findings& found) {
  if (engine.golden.forms.empty()) warn(kNoGoldenValues);
  for (const Plan* plan : runnable_plans(engine)) {
    if (!has_golden_values(engine, *plan) || (!o.plan.empty() && plan->name != o.plan)) continue;
    TS_ASSIGN(VerifyReport report, check_golden(engine, *plan));
    found.checks.push_back({"golden values", std::move(report)});
  }
  return {};
}

using Sizes = std::map<std::string, int64_t>;

// The bucket that the arrays of a user's file fit; empty where all plans take them.
Result<Sizes> bucket_of_inputs(const Engine& engine, const ComparisonOptions& o) {
  if (o.inputs.empty() || engine.lengths.none()) return Sizes();
  TS_ASSIGN(const std::vector<Shape> shapes, read_shapes(engine.plans[0], o.inputs));
  const auto fit = fit_lengths(engine, engine.plans[0].graph, shapes);
  if (!fit.ok()) return fit.status().at(o.inputs);
  return fit->plans[0]->sizes;
}

// The golden plans that quantization error is measured with: of the plan that was asked for, else all; of one bucket
// where it is given.
std::vector<const Plan*> goldens_of(const Engine& engine, const ComparisonOptions& o, const Sizes& bucket) {
  std::vector<const Plan*> goldens;
  for (const Plan* golden : golden_plans(engine)) {
    if (!bucket.empty() && golden->sizes != bucket) continue;
    const std::vector<const Plan*> plans = plans_of(engine, *golden);
    if (o.plan.empty() || std::any_of(plans.begin(), plans.end(), [&](const Plan* p) { return p->name == o.plan; }))
      goldens.push_back(golden);
  }
  return goldens;
}

// A golden plan, and the model in f32 with its shapes.
struct WithModel {
  const Plan* golden;
  F32Model model;
};

Status compare_inputs(const Engine& engine, const ComparisonOptions& o, InputKind kind, const Sizes& bucket,
                      const std::vector<WithModel>& models, Findings& found) {
  TS_TRY(check_cancelled());
  const VerifyOptions options{.layers = !o.outputs_only,
                              .seed = o.seed,
                              .kind = kind,
                              .inputs = o.inputs,
                              .samples = o.samples,
                              .plan = o.plan,
                              .sizes = bucket,
                              .quiet = o.quiet};
  TS_ASSIGN(std::vector<VerifyReport> reports, verify_plans(engine, options));
  const std::string what =
      o.inputs.empty() ? cat(name_of(kind), ", seed ", o.seed) : o.inputs.substr(o.inputs.rfind('/') + 1);
  for (VerifyReport& r : reports) found.checks.push_back({what, std::move(r)});
  for (const WithModel& m : models) {
    TS_ASSIGN(QuantizationReport report, measure_quantization(engine, &m.model, options, m.golden));
    const bool gated = report.fitting || !o.kinds.empty() || kind == InputKind::kNormal;
    found.quantization.push_back({std::move(report), gated});
  }
  return {};
}

}  // namespace

Status check_contradictions(const ComparisonOptions& o) {
  if (!o.inputs.empty() && !o.kinds.empty())
    return usage_error("--kinds draws inputs, --inputs brings them: give one of the two");
  if (!o.family.empty() && o.model.empty()) return usage_error("--family is about --model, which is not given");
  if (o.min_cosine && o.model.empty() && !(o.inputs.empty() && o.kinds.empty())) {
    return usage_error(cat("--min-cosine judges ", o.inputs.empty() ? "--kinds" : "--inputs",
                           " beside the model: give it with --model FILE"));
  }
  return {};
}

Result<std::string> clamped_of_file(const Engine& engine, const ComparisonOptions& o) {
  if (o.inputs.empty()) return std::string();
  const auto named =
      std::find_if(engine.plans.begin(), engine.plans.end(), [&](const Plan& p) { return p.name == o.plan; });
  if (o.plan.empty() && graph_names(engine).size() > 1)
    return usage_error("--inputs holds arrays of one graph, and the engine has several: name a plan with --plan");
  TS_ASSIGN(const Sizes bucket, bucket_of_inputs(engine, o));
  const std::vector<const Plan*> goldens = goldens_of(engine, {}, bucket);
  const Plan* const golden = named != engine.plans.end() ? golden_plan(engine, *named)
                             : goldens.empty()           ? nullptr
                                                         : goldens[0];
  if (golden == nullptr) return std::string();
  TS_ASSIGN(const Samples all, read_samples(*golden, o.inputs, {.lengths = &engine.lengths}));
  const int64_t used = std::min(all.count, o.samples > 0 ? o.samples : kSamplesOfFile);
  const std::string not_finite = non_finite_inputs(*golden, all.part(0, used));
  if (!not_finite.empty()) return bad_input(cat(o.inputs, ": ", not_finite, "; verify wants finite numbers"));
  const std::string clamped = clamped_inputs(*golden, all.part(0, used));
  return clamped.empty() ? clamped : cat(o.inputs, ": ", clamped);
}

Result<Findings> compare_engine(const Engine& engine, const ComparisonOptions& o) {
  TS_TRY(check_contradictions(o));
  Findings found;
  TS_TRY(compare_golden_values(engine, o, found));
  TS_ASSIGN(std::vector<InputKind> kinds, kinds_asked(o.kinds));
  if (!o.inputs.empty()) kinds.resize(1);
  found.one_kind = o.inputs.empty() && takes_integers_only(engine);
  if (found.one_kind) kinds = {InputKind::kNormal};
  TS_ASSIGN(const Sizes bucket, bucket_of_inputs(engine, o));
  const std::vector<const Plan*> goldens = goldens_of(engine, o, bucket);
  if (goldens.empty() && !o.model.empty()) return bad_input("the engine has no golden plan to compare with");
  std::vector<WithModel> models;
  for (const Plan* golden : goldens) {
    if (o.model.empty()) break;
    TS_ASSIGN(F32Model model, f32_model_of(engine, *golden, o.model, o.family));
    models.push_back({golden, std::move(model)});
  }
  for (const Plan* golden : goldens) {
    if (engine.golden.original.empty()) break;
    if (golden_form(engine, *golden) == nullptr) continue;  // --golden smallest: values of another bucket alone
    TS_ASSIGN(QuantizationReport stored, measure_quantization(engine, nullptr, {.quiet = true}, golden));
    found.quantization.push_back({std::move(stored), true});
  }
  if (o.min_cosine && models.empty()) TS_TRY(check_gate(found.quantization));
  for (const InputKind kind : kinds) TS_TRY(compare_inputs(engine, o, kind, bucket, models, found));
  if (o.min_cosine) TS_TRY(check_gate(found.quantization));
  return found;
}

Verdicts judge(const Engine& engine, const Findings& found, std::optional<double> min_cosine) {
  std::vector<const QuantizationReport*> judged;
  for (const Measured& m : found.quantization) {
    if (m.gated) judged.push_back(&m.report);
  }
  return {.arithmetic = failure_of(found.checks),
          .precision = quantization_failure(found.quantization, min_cosine),
          .quantization = judge_quantization(judged, min_cosine, engine.golden.min_cosine)};
}

std::string Verdicts::failure() const {
  return cat(arithmetic, arithmetic.empty() || precision.empty() ? "" : "; ", precision);
}

}  // namespace tessera
