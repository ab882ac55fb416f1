// SPDX-License-Identifier: Apache-2.0
#include "cli/build_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "cli/output.h"
#include "cli/plan_summary.h"
#include "ir/layer_ops.h"
#include "plan/golden_plans.h"
#include "runtime/batches.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

std::string golden_sentence(const Engine& engine, bool ran) {
  if (engine.golden.forms.empty()) return "no golden values (--no-verify)";
  const std::vector<const Plan*> plans = runnable_plans(engine);
  const bool all =
      std::all_of(plans.begin(), plans.end(), [&](const Plan* p) { return has_golden_values(engine, *p); });
  const std::string of = all ? "" : " of the smallest plans";
  if (ran) return cat("golden values", of, " reproduced here");
  return cat("golden values", of, " stored; not run on its target: ", why_not_here(engine.target));
}

// Attention has a flag of its own: who asks for fewer than 16 bits hears that it is not meant by it.
std::string attention_sentence(const Engine& engine, const BuildOptions& options) {
  const Plan& plan = engine.plans[0];
  const auto type_of = [&](int tensor) { return plan.tensors[static_cast<size_t>(tensor)].desc.type; };
  const auto in_codes = [&](const PlanStep& s) { return type_of(s.in[0]).scaled(); };
  int64_t plain = 0;
  bool few_bits = false;
  std::string carrier;
  for (const PlanStep& s : plan.steps) {
    if (s.op == "attention" && !in_codes(s)) ++plain, carrier = plain_precision(type_of(s.in[0]).element).name;
    few_bits = few_bits || (multiplies_weights(s.op) && s.in.size() > 1 && s.in[1] >= 0 && type_of(s.in[1]).scaled() &&
                            !read_asked(s.asked).imported());
  }
  if (plain == 0 || !few_bits || !options.attention.empty() || (options.recipe && !options.recipe->attention.empty()))
    return "";
  return cat("attention stays ", carrier, " (", plural(plain, "layer"), "): --attention fp8 asks for fewer bits there");
}

// Attentions that nobody recognised: no flag reaches them, so they are counted.
std::string spelt_sentence(const Plan& plan) {
  const SpeltAttentions spelt = spelt_attentions(plan);
  if (spelt.softmaxes == 0) return "";
  return cat(plural(spelt.softmaxes, "softmax", "softmaxes"), spelt.softmaxes == 1 ? " is" : " are",
             " not recognised as attention: ",
             spelt.softmaxes == 1 ? "it and its products run" : "they and their products run", " op by op in ",
             spelt.type);
}

// Outputs of the quantized model beside those of the model as written.
Json quality_json(const ModelReport& report) {
  Json outputs = Json::array();
  for (const OutputQuality& q : report.outputs) {
    if (q.whole) {
      outputs.push_back({{"name", q.name}, {"same", q.whole->same}, {"of", q.whole->all}});
      continue;
    }
    outputs.push_back({{"name", q.name},
                       {"cosine_mean", q.closeness.cosine_mean},
                       {"cosine_worst", q.closeness.cosine_worst},
                       {"relative_l2", q.closeness.relative_l2}});
  }
  return outputs;
}

Json samples_json(const std::vector<ModelReport>& reports) {
  for (const ModelReport& report : reports) {
    if (report.samples == 0) continue;
    return {{"samples", report.samples},
            {"cosine_mean", report.on_samples.cosine_mean},
            {"cosine_worst", report.on_samples.cosine_worst},
            {"relative_l2", report.on_samples.relative_l2}};
  }
  return {};
}

// Plans that are fused alike, and how far they are from the model as written.
Json forms_json(const std::vector<ModelReport>& reports) {
  Json forms = Json::array();
  for (const ModelReport& r : reports) forms.push_back({{"plans", r.plans}, {"outputs", quality_json(r)}});
  return forms;
}

template <class List>
Json all_of(const std::vector<ModelReport>& reports, List ModelReport::*list) {
  Json all = Json::array();
  for (const ModelReport& r : reports) {
    for (const std::string& s : r.*list) all.push_back(s);
  }
  return all;
}

Json plans_json(const Engine& engine) {
  Json plans = Json::array();
  for (const Plan* p : runnable_plans(engine))
    plans.push_back({{"name", p->name},
                     {"batch", p->batch},
                     {"steps", p->steps.size()},
                     {"arena_bytes", p->arena_bytes},
                     {"tuning", p->tuning}});
  return plans;
}

Json layers_json(const Plan& plan) {
  Json layers = Json::array();
  for (const PromiseGroup& g : promise_groups(plan))
    layers.push_back({{"asked", g.asked}, {"stored", g.stored}, {"computed", g.computed}, {"layers", g.layers}});
  return layers;
}

Json chosen_json(const AutoChoice& chosen) {
  Json layers = Json::array();
  for (const AutoLayer& l : chosen.layers)
    layers.push_back(
        {{"layer", l.layer.name}, {"precision", l.precision}, {"cost", l.cost}, {"bytes_saved", l.bytes_saved}});
  return layers;
}

// By size, what its plans are for, and why arrays are not padded.
Json lengths_json(const Engine& engine) {
  Json sizes = Json::array();
  for (const auto& [size, why] : engine.lengths.why_exact)
    sizes.push_back(
        {{"size", size}, {"plans", numbers_of_size(engine.plans, size)}, {"padded", why.empty()}, {"why", why}});
  return sizes;
}

void say(size_t indent, const std::string& line) { fmt::print("{}\n", wrap(printable(line), indent, indent + 2)); }

std::string tuned_words(const Plan& p) {
  if (!p.tuning.empty()) return cat(", tuned by table ", p.tuning);
  return info(p.arch).device == DeviceKind::kCuda ? ", kernels not chosen by measured times (--tune measures)" : "";
}

void print_plans(const Engine& engine) {
  for (const Plan* p : runnable_plans(engine)) {
    say(2, cat("plan ", p->name, ": ", plural(static_cast<int64_t>(p->steps.size()), "step"), ", ",
               megabytes(p->arena_bytes), " of working memory", tuned_words(*p)));
    if (const std::string folded = say_folded_norms(*p); !folded.empty())
      say(4, folded + " (--keep-norms leaves them)");
  }
  for (const Port& input : engine.plans[0].inputs) {
    if (const std::string pixels = say_pixels(engine.plans[0], input); !pixels.empty())
      say(2, cat("input ", input.name, ": ", pixels));
  }
  for (const PromiseGroup& g : promise_groups(engine.plans[0])) {
    say(2, cat(plural(g.layers, "layer"), ": asked ", g.asked, ", stored ", g.stored, ", computed ", g.computed));
    // Layers that are not in the precision of the command line are few, and they are named.
    if (read_asked(g.asked).precision != engine.precision && engine.recipe.empty() && engine.precision != "auto")
      say(4, g.names);
  }
}

void print_chosen(const AutoChoice& chosen) {
  Table table({"layer", "chosen", ">1 - cosine alone", ">saves"});
  for (const AutoLayer& l : chosen.layers)
    table.add(
        {l.layer.name, l.precision, fmt::format("{:.1e}", l.cost), megabytes(static_cast<int64_t>(l.bytes_saved))});
  fmt::print("{}", table.text());
  say(2, cat("weights of these layers: ", megabytes(static_cast<int64_t>(chosen.bytes)), ", in ", chosen.base, " ",
             megabytes(static_cast<int64_t>(chosen.bytes_of_carrier))));
}

// `as_run`: what the measurement on samples leaves out. `of`: the plans that it is about, where others differ.
void print_quality(const Engine& engine, const ModelReport& quality, const char* as_run, const std::string& of) {
  if (quality.samples > 0) {
    say(2, fmt::format("{}on {} of --calib: mean cosine {:.5f} of the quantized model with the model in fp32, at least "
                       "{:.6g} wanted; worst sample {:.5f}, relative L2 {:.1e}{}",
                       of, plural(quality.samples, "sample"), quality.on_samples.cosine_mean, quality.min_cosine,
                       quality.on_samples.cosine_worst, quality.on_samples.relative_l2, as_run));
  }
  for (const OutputQuality& q : quality.outputs) {
    if (q.whole) {
      say(2, fmt::format(
                 "{}on the golden inputs ({}): output '{}': {} of {} whole numbers are those of the model as written",
                 of, engine.golden.from, q.name, q.whole->same, q.whole->all));
      continue;
    }
    if (q.closeness.alone) {
      say(2, fmt::format("{}on the golden inputs ({}): output '{}' is one number, {:.2g} % from that of the model as "
                         "written; no cosine judges one number",
                         of, engine.golden.from, q.name, 100 * q.closeness.relative_l2));
      continue;
    }
    say(2, fmt::format("{}on the golden inputs ({}): mean cosine {:.5f} of output '{}' of the quantized model with "
                       "the model as written, at least {:.6g} wanted",
                       of, engine.golden.from, q.closeness.cosine_mean, q.name, quality.min_cosine));
  }
  if (!quality.padding.empty())
    say(2, cat("padding: what '", quality.padding, "' hides does not change the outputs (other numbers stood there)"));
  constexpr size_t kColumn = 18;  // "tessera: warning: " stands before it
  for (const std::string& w : quality.warnings) warn(wrap(printable(w), kColumn, 2).substr(kColumn));
}

}  // namespace

void print_build_json(const WrittenEngine& written) {
  const Engine& engine = written.built.engine;
  const std::vector<ModelReport>& reports = written.built.reports;
  const ModelReport quality = reports.empty() ? ModelReport() : reports[0];
  const BuildTimes& times = written.built.times;
  const bool ran = written.built.ran_on_target;
  print_json({{"file", written.path},
              {"bytes", written.bytes},
              {"model", engine.model},
              {"precision", engine.precision},
              {"target", info(engine.target).name},
              {"calibration", engine.calibration},
              {"preprocess", engine.preprocess},
              {"plans", plans_json(engine)},
              {"lengths", lengths_json(engine)},
              {"layers", layers_json(engine.plans[0])},
              {"softmaxes_not_in_attention", spelt_attentions(engine.plans[0]).softmaxes},
              {"auto", chosen_json(written.built.chosen)},
              {"golden", golden_sentence(engine, ran)},
              {"golden_inputs", engine.golden.from},
              {"on_samples", samples_json(reports)},
              {"min_cosine", quality.outputs.empty() ? Json() : Json(quality.min_cosine)},
              {"outputs", quality_json(quality)},
              {"forms", forms_json(reports)},
              {"padding", quality.padding},
              {"warnings", all_of(reports, &ModelReport::warnings)},
              {"validated", all_of(reports, &ModelReport::validated)},
              {"ran_on_target", ran},
              {"seconds",
               {{"import", times.import_s},
                {"refine", times.refine_s},
                {"calibrate", times.calibrate_s},
                {"tune", times.tune_s},
                {"compile", times.compile_s},
                {"golden", times.golden_s},
                {"write", written.write_s}}}});
}

void print_build_report(const WrittenEngine& written) {
  const Engine& engine = written.built.engine;
  const BuildTimes& times = written.built.times;
  // Both are measured by CPU plans, which have no gate: what that changes is said.
  const bool gated = std::any_of(engine.plans[0].steps.begin(), engine.plans[0].steps.end(),
                                 [](const PlanStep& s) { return s.then.gated(); });
  const char* const as_run =
      gated ? " (by layers on the CPU, which round both halves of a gated MLP and their product; the engine does not)"
            : "";
  const std::string how = engine.recipe.empty() ? engine.precision : cat("recipe ", engine.recipe);
  say(0, cat(written.path, ": ", engine.model, " in ", how, " for ", info(engine.target).name, ", ",
             megabytes(written.bytes)));
  print_plans(engine);
  if (const std::string text = attention_sentence(engine, written.options); !text.empty()) say(2, text);
  if (const std::string text = spelt_sentence(engine.plans[0]); !text.empty()) say(2, text);
  if (!written.built.chosen.layers.empty()) {
    print_chosen(written.built.chosen);
    if (gated) say(2, cat("cosines of the choice", as_run));
  }
  for (const std::string& l : say_lengths(engine)) say(2, "lengths: " + l);
  if (!engine.calibration.empty()) say(2, "scales: " + engine.calibration);
  if (!engine.preprocess.empty()) say(2, "images: " + engine.preprocess);
  for (const std::string& a : engine.allowed) say(2, "allowed: " + a);
  const std::vector<ModelReport>& reports = written.built.reports;
  for (const ModelReport& r : reports)
    print_quality(
        engine, r, as_run,
        reports.size() < 2 ? "" : cat(r.plans.find(',') == std::string::npos ? "plan " : "plans ", r.plans, ": "));
  say(2, golden_sentence(engine, written.built.ran_on_target));
  const double seconds = times.import_s + times.refine_s + times.calibrate_s + times.tune_s + times.compile_s +
                         times.golden_s + written.write_s;
  say(2, fmt::format("{:.1f} s: import {:.1f}, refine {:.1f}, calibrate {:.1f}, tune {:.1f}, compile {:.1f}, golden "
                     "values {:.1f}, write {:.1f}",
                     seconds, times.import_s, times.refine_s, times.calibrate_s, times.tune_s, times.compile_s,
                     times.golden_s, written.write_s));
}

}  // namespace tessera
