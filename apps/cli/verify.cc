// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/log.h"
#include "calibrate/ranges_file.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/open_engine.h"
#include "cli/output.h"
#include "cli/plan_summary.h"
#include "cli/verify_tables.h"
#include "compile/compile.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"
#include "runtime/batches.h"

namespace tessera {
namespace {

struct Options {
  std::string engine, inputs, kinds, model, family, plan;
  std::optional<double> min_cosine;
  bool outputs_only = false, all = false;
  int64_t samples = 0;
  uint64_t seed = 2;  // golden values have 1: these inputs are fresh
  const OptionList* options = nullptr;
};

Status refuse_ignored(const Options& o, const Common& common) {
  if (!o.inputs.empty() && o.options->given("--seed"))
    return usage_error("--seed draws inputs, --inputs brings them: give one of the two");
  if (!o.inputs.empty() && !o.kinds.empty())
    return usage_error("--kinds draws inputs, --inputs brings them: give one of the two");
  if (o.all && o.outputs_only)
    return usage_error("--all shows layers, --outputs-only compares none: give one of the two");
  if (!o.family.empty() && o.model.empty()) return usage_error("--family is about --model, which is not given");
  if (o.min_cosine && o.model.empty() && !(o.inputs.empty() && o.kinds.empty())) {
    return usage_error(cat("--min-cosine judges ", o.inputs.empty() ? "--kinds" : "--inputs",
                           " beside the model: give it with --model FILE"));
  }
  if (o.all && common.json) return usage_error("--json holds every layer: leave --all out");
  return {};
}

// Numbers that are not finite make every comparison fail: that is the inputs' fault, and said of them.
Status check_inputs(const Engine& engine, const Options& o) {
  if (o.inputs.empty()) return {};
  const auto named =
      std::find_if(engine.plans.begin(), engine.plans.end(), [&](const Plan& p) { return p.name == o.plan; });
  if (o.plan.empty() && graph_names(engine).size() > 1)
    return usage_error("--inputs holds arrays of one graph, and the engine has several: name a plan with --plan");
  const Plan* const golden = named == engine.plans.end() ? golden_plan(engine) : golden_plan(engine, *named);
  if (golden == nullptr) return {};
  TS_ASSIGN(const Samples all, read_samples(*golden, o.inputs));
  const int64_t used = std::min(all.count, o.samples > 0 ? o.samples : kSamplesOfFile);
  const std::string not_finite = non_finite_inputs(*golden, all.part(0, used));
  if (!not_finite.empty()) return bad_input(cat(o.inputs, ": ", not_finite, "; verify wants finite numbers"));
  const std::string clamped = clamped_inputs(*golden, all.part(0, used));
  constexpr size_t kColumn = 18;  // "tessera: warning: " stands before it
  if (!clamped.empty()) warn(wrap(printable(cat(o.inputs, ": ", clamped)), kColumn, 2).substr(kColumn));
  return {};
}

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

// A report, and whether --min-cosine applies to it: golden inputs, the user's own and the kinds that are asked for by
// name. Of the kinds that run where none is named only normal: nobody said that the model is for large or small ones.
struct Measured {
  QuantizationReport report;
  bool gated;
};

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

constexpr const char* kOneKind = "integer inputs: one kind";

struct Findings {
  std::vector<VerifyCheck> checks;     // arithmetic
  std::vector<Measured> quantization;  // precision
  bool one_kind = false;
};

Status compare_golden_values(const Engine& engine, const Options& o, Findings& found) {
  if (engine.golden.forms.empty()) warn(kNoGoldenValues);
  for (const Plan* plan : runnable_plans(engine)) {
    if (!has_golden_values(engine, *plan) || (!o.plan.empty() && plan->name != o.plan)) continue;
    TS_ASSIGN(VerifyReport report, check_golden(engine, *plan));
    found.checks.push_back({"golden values", std::move(report)});
  }
  return {};
}

// The golden plans that quantization error is measured with: of the plan that was asked for, else all.
std::vector<const Plan*> goldens_of(const Engine& engine, const Options& o) {
  std::vector<const Plan*> goldens;
  for (const Plan* golden : golden_plans(engine)) {
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

Status compare_inputs(const Engine& engine, const Options& o, InputKind kind, const std::vector<WithModel>& models,
                      bool quiet, Findings& found) {
  const VerifyOptions options{.layers = !o.outputs_only,
                              .seed = o.seed,
                              .kind = kind,
                              .inputs = o.inputs,
                              .samples = o.samples,
                              .plan = o.plan,
                              .quiet = quiet};
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

Result<Findings> compare(const Engine& engine, const Options& o, bool quiet) {
  Findings found;
  TS_TRY(compare_golden_values(engine, o, found));
  TS_ASSIGN(std::vector<InputKind> kinds, kinds_asked(o.kinds));
  if (!o.inputs.empty()) kinds.resize(1);
  found.one_kind = o.inputs.empty() && takes_integers_only(engine);
  if (found.one_kind) kinds = {InputKind::kNormal};
  const std::vector<const Plan*> goldens = goldens_of(engine, o);
  if (goldens.empty() && !o.model.empty()) return bad_input("the engine has no golden plan to compare with");
  std::vector<WithModel> models;
  for (const Plan* golden : goldens) {
    if (o.model.empty()) break;
    TS_ASSIGN(F32Model model, f32_model_of(engine, *golden, o.model, o.family));
    models.push_back({golden, std::move(model)});
  }
  for (const Plan* golden : goldens) {
    if (engine.golden.original.empty()) break;
    TS_ASSIGN(QuantizationReport stored, measure_quantization(engine, nullptr, {.quiet = true}, golden));
    found.quantization.push_back({std::move(stored), true});
  }
  if (o.min_cosine && models.empty()) TS_TRY(check_gate(found.quantization));
  for (const InputKind kind : kinds) TS_TRY(compare_inputs(engine, o, kind, models, quiet, found));
  if (o.min_cosine) TS_TRY(check_gate(found.quantization));
  return found;
}

// The two verdicts: what failed, as a sentence each, empty where nothing did.
struct Verdicts {
  std::string arithmetic, precision;
  QuantizationVerdict quantization;

  std::string failure() const {
    return cat(arithmetic, arithmetic.empty() || precision.empty() ? "" : "; ", precision);
  }
};

Verdicts judge(const Engine& engine, const Findings& found, std::optional<double> min_cosine) {
  std::vector<const QuantizationReport*> judged;
  for (const Measured& m : found.quantization) {
    if (m.gated) judged.push_back(&m.report);
  }
  return {.arithmetic = failure_of(found.checks),
          .precision = quantization_failure(found.quantization, min_cosine),
          .quantization = judge_quantization(judged, min_cosine, engine.golden.min_cosine)};
}

void print_verify_json(const Options& o, const Engine& engine, const Findings& found, const Verdicts& verdicts) {
  Json all = Json::array(), errors = Json::array();
  for (const VerifyCheck& c : found.checks) all.push_back(check_json(c));
  for (const Measured& m : found.quantization) errors.push_back(quantization_json(m.report));
  Json of_quantization = verdicts.quantization.json();
  of_quantization["ok"] = verdicts.precision.empty();
  const VerifyReport& last = found.checks.back().report;
  const std::string failure = verdicts.failure();
  print_json({{"engine", o.engine},
              {"precision", engine.precision},
              {"ok", failure.empty()},
              {"sentence", failure},
              {"inputs_note", found.one_kind ? kOneKind : ""},
              {"verdicts",
               {{"arithmetic",
                 {{"ok", verdicts.arithmetic.empty()},
                  {"sentence", verdicts.arithmetic.empty() ? last.sentence : verdicts.arithmetic},
                  {"machine", last.machine}}},
                {"quantization", of_quantization}}},
              {"checks", all},
              {"quantization", errors}});
}

// What failed is said by the error.
void print_verify(const Options& o, const Findings& found, const Verdicts& verdicts) {
  print_checks(found.checks, o.all);
  if (found.one_kind) fmt::print("{}\n", kOneKind);
  std::vector<QuantizationReport> reports;
  for (const Measured& m : found.quantization) reports.push_back(m.report);
  print_quantization(reports, o.all);
  const VerifyReport& last = found.checks.back().report;
  fmt::print("\n{}\n", wrap(verdicts.arithmetic.empty() ? cat("arithmetic: ", last.sentence, ", on ", last.machine)
                                                        : "arithmetic: FAILED",
                            0, 2));
  fmt::print("{}\n", wrap(printable(cat("quantization: ", verdicts.precision.empty() ? "" : "FAILED: ",
                                        verdicts.quantization.sentence())),
                          0, 2));
}

Status verify(const Options& o, const Common& common) {
  TS_TRY(refuse_ignored(o, common));
  TS_ASSIGN(const Engine engine, open_engine(o.engine));
  TS_TRY(check_constants(engine).at(o.engine));
  TS_TRY(check_target(engine));
  TS_TRY(check_inputs(engine, o));
  TS_ASSIGN(const Findings found, compare(engine, o, common.quiet || common.json));
  const Verdicts verdicts = judge(engine, found, o.min_cosine);
  const std::string failure = verdicts.failure();
  if (common.json) {
    print_verify_json(o, engine, found, verdicts);
    return failure.empty() ? Status() : verification_failed();
  }
  print_verify(o, found, verdicts);
  return failure.empty() ? Status() : Status(Code::kVerifyFailed, failure);
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("engine", o->engine, "FILE", "an engine file").required = true;
  options.group("Inputs");
  options.add("-i,--inputs", o->inputs, "FILE",
              "npz with an array per input, named like it, [samples, ...]: verify on your own data (default: seeded "
              "random inputs)");
  options
      .add("--samples", o->samples, "N",
           "how many samples (default: of --inputs all, up to 16; of random inputs as many as the engine has "
           "golden values "
           "for, 1 or 2); each costs an f64 run or two")
      .check = within(1, 1 << 20);
  options.add("--seed", o->seed, "N", "of the random inputs (default: 2; golden values have 1)").check = not_negative();
  options.add("--kinds", o->kinds, "NAME,...",
              "kinds of random inputs: normal, uniform (-1 to 1), small (2^-10), large (2^5); one kind where all "
              "inputs are integers "
              "(default: all)");
  options.group("What is compared");
  options.add("--model", o->model, "FILE",
              "the ONNX model that the engine was built from: quantization error of every layer beside it in f32");
  options.add("--family", o->family, "NAME", "--model is a folder with a checkpoint of this family: " + family_list());
  options
      .add("--min-cosine", o->min_cosine, "C",
           "fail where an output has less with the model, on golden inputs, --inputs, each of --kinds, else "
           "normal (default: reported only; build has its own gate)")
      .check = is_cosine();
  options.add("--plan", o->plan, "NAME", "only this plan (default: all)");
  options.add("--outputs-only", o->outputs_only, "not layer by layer: faster, but a failure names no layer");
  options.add("--all", o->all, "show every layer (default: the five nearest to their bound)");
  o->options = &options;
  return [o, &common] { return verify(*o, common); };
}

}  // namespace

const Command verify_command{
    "verify",
    "compare an engine with its golden plan and its model, layer by layer",
    "Two errors, with a verdict each. Arithmetic error is what the kernels' roundings do: is the engine right? It is "
    "measured in three "
    "comparisons. Golden values: the engine reproduces the outputs and the values inside the model that were stored at "
    "build. Outputs: the "
    "same for fresh inputs. Values inside the model are compared one after the other, each in a run that starts from "
    "the golden value "
    "before it, so errors do not add up. Layers: each layer is compared with what its kernel must give for the inputs "
    "that the layer "
    "read, and the first layer that differs by more is named. 'emulated': the tensor core's sums bit for bit, then the "
    "kernel's own "
    "epilogue. 'bounded': f64, and what the kernel's roundings can do. Quantization error is what the low precision "
    "costs: the same "
    "codes and scales in exact arithmetic, beside the model in f32. It is measured on the outputs that were stored at "
    "build, or, with "
    "--model, on any inputs and for every layer; scales that do not fit their numbers are named. On a GPU the "
    "comparison of layers "
    "runs step by step, without the CUDA graph.",
    "  tessera verify vit.tess\n"
    "  tessera verify vit.tess --inputs images.npz --samples 4\n"
    "  tessera verify vit.tess --model vit.onnx --inputs images.npz --all\n"
    "  tessera verify vit.tess --kinds normal --seed 42\n"
    "  tessera verify vit.tess --json | jq '.checks[].first_stray'\n",
    "Columns:\n"
    "  samples   how many were compared; of --inputs also how many the file holds\n"
    "  cosine    with the right result, the mean over the samples\n"
    "  worst     the lowest cosine of any sample\n"
    "  sample    which sample has the lowest cosine, counted from 0\n"
    "  centred   the mean cosine after each side's mean is subtracted: no common offset hides errors\n"
    "  rel. L2   relative L2 error: the length of the difference, divided by that of the right result\n"
    "  dB        the same as a signal-to-noise ratio, -20 log10 of it\n"
    "  adds      relative L2 error of a layer's result, less that of the inputs that it read\n"
    "  bound     the relative L2 error that the arithmetic allows\n"
    "  differ    results that are not the likeliest code / results near a tie, which may differ\n",
    true,
    add};

}  // namespace tessera
