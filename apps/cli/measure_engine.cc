// SPDX-License-Identifier: Apache-2.0
#include "cli/measure_engine.h"

#include <algorithm>
#include <set>

#include "cli/open_engine.h"
#include "cli/open_profile.h"
#include "cli/report_file.h"
#include "explain/rates.h"
#include "ir/layer_ops.h"
#include "ir/ranges.h"
#include "plan/golden_plans.h"
#include "precision/quantize.h"
#include "profile/describe.h"
#include "verify/verdicts.h"

namespace tessera {
namespace {

// A graph of a schedule says its name; `graph` is empty where there is one plan.
void add_facts(const VerifyReport& golden, const std::vector<QuantizationReport>& measured,
               std::optional<double> gate_of_build, const std::string& graph, AccuracyFacts& facts) {
  const auto of_graph = [&](const std::string& text) { return graph.empty() ? text : cat(graph, ": ", text); };
  const auto say = [&](std::string& all, const std::string& text) {
    all += cat(all.empty() ? "" : "; ", of_graph(text));
  };
  say(facts.arithmetic, cat(golden.sentence, ", on ", golden.machine));
  facts.ok = facts.ok && golden.ok;
  std::vector<const QuantizationReport*> judged;
  for (const QuantizationReport& r : measured) {
    judged.push_back(&r);
    for (const OutputQuality& o : r.outputs) {
      OutputAccuracy& a = facts.outputs.emplace_back(OutputAccuracy{.output = of_graph(o.name), .inputs = r.what});
      a.samples = r.samples;
      a.cosine_mean = o.closeness.cosine_mean;
      a.cosine_worst = o.closeness.cosine_worst;
      a.relative_l2 = o.closeness.relative_l2;
      if (o.whole) a.same_of = {o.whole->same, o.whole->all};
    }
  }
  const QuantizationVerdict verdict = judge_quantization(judged, std::nullopt, gate_of_build);
  say(facts.quantization, verdict.sentence());
}

Status add_accuracy(const Engine& engine, const PlansOfAnswer& plans, ReportEntry& entry) {
  const bool all = std::all_of(plans.begin(), plans.end(),
                               [&](const ScheduledPlan& item) { return has_golden_values(engine, *item.plan); });
  if (!all) {
    entry.no_accuracy = engine.golden.forms.empty() ? kNoGoldenValues : kGoldenOfSmallest;
    return {};
  }
  AccuracyFacts facts;
  for (const ScheduledPlan& item : plans) {
    TS_ASSIGN(const VerifyReport golden, check_golden(engine, *item.plan));
    std::vector<QuantizationReport> measured;
    if (!engine.golden.original.empty()) {
      TS_ASSIGN(QuantizationReport stored,
                measure_quantization(engine, nullptr, {.quiet = true}, golden_plan(engine, *item.plan)));
      measured.push_back(std::move(stored));
    }
    add_facts(golden, measured, engine.golden.min_cosine, plans.size() > 1 ? item.plan->graph : "", facts);
  }
  entry.accuracy = std::move(facts);
  return {};
}

std::vector<LayerPrecision> promised_layers(const PlansOfAnswer& plans) {
  std::vector<LayerPrecision> layers;
  for (const ScheduledPlan& item : plans) {
    for (const PlanStep& s : item.plan->steps) {
      if (!multiplies_weights(s.op) && s.op != "attention") continue;
      for (const std::string& layer : layers_of(s)) layers.push_back({layer, s.op, s.asked, s.stored, s.computed});
    }
  }
  return layers;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += cat(out.empty() ? "" : "; ", w);
  return out;
}

// The one word that all of these steps have, or several with a stroke between.
std::string one_of(const std::set<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += cat(out.empty() ? "" : "/", w);
  return out;
}

}  // namespace

std::string EngineWords::all() const {
  std::string text = precision;
  if (!attention.empty() && attention != "fp16" && attention != precision) text += cat(", ", attention, " attention");
  if (attention == precision && (precision.find("fp8") != std::string::npos))
    text += cat(", ", attention, " attention");
  if (!sparsity.empty()) text += cat(", ", sparsity);
  return text;
}

EngineWords words_of(const Engine& engine, const PlansOfAnswer& plans) {
  EngineWords words{.precision = engine.recipe.empty() ? engine.precision : cat("recipe ", engine.recipe)};
  std::set<std::string> attention;
  bool sparse = false, paired = false;
  for (const ScheduledPlan& item : plans) {
    for (const PlanStep& s : item.plan->steps) {
      // Where none was asked for, it has the carrier's type.
      if (s.op == "attention") attention.insert(s.asked.empty() ? multiplied_in(s.stored) : s.asked);
      sparse = sparse || s.stored.find("2:4") != std::string::npos;
      paired = paired || s.stored.find("4:8") != std::string::npos;
    }
  }
  words.attention = one_of(attention);
  words.sparsity = paired ? "4:8" : sparse ? "2:4" : "";
  return words;
}

Result<ReportEntry> measure_engine(const std::string& path, const Engine& engine, const PlansOfAnswer& plans,
                                   const MeasureOptions& options) {
  if (const Status here = check_target(engine); !here.ok()) return here.at(path);
  ReportEntry entry;
  auto profile = profile_engine(engine, plans,
                                {.runs = options.runs,
                                 .ceilings = options.ceilings ? CeilingsUse::kCached : CeilingsUse::kNone,
                                 .path = path,
                                 .time_schedule = timer_of_policy(engine)});
  if (!profile.ok()) return profile.status().at(path);
  entry.profile = std::move(profile).value();
  entry.name = words_of(engine, plans).all();
  entry.layers = promised_layers(plans);
  entry.no_accuracy = "not compared with its model (--no-verify)";
  if (options.verify) {
    if (const Status compared = add_accuracy(engine, plans, entry); !compared.ok()) return compared.at(path);
  }
  entry.configuration = {{"target", info(engine.target).name},
                         {"made by", engine.producer},
                         {"scales", engine.calibration},
                         {"images", engine.preprocess},
                         {"weights refined", joined(engine.refinements)},
                         {"allowed", joined(engine.allowed)},
                         {"tuning table", plans.at(0).plan->tuning}};
  return entry;
}

std::string build_command_of(const std::string& path, const Engine& engine) {
  std::vector<int64_t> batches;  // each once: buckets of lengths and graphs have plans of the same
  std::vector<const Plan*> plans;
  for (const Plan& p : engine.plans) {
    if (p.arch != engine.target) continue;
    plans.push_back(&p);
    if (std::find(batches.begin(), batches.end(), p.batch) == batches.end()) batches.push_back(p.batch);
  }
  const EngineWords words = plans.empty() ? EngineWords{} : words_of(engine, {{plans[0]}});
  const Making making = making_of(engine, plans);
  const bool samples = !engine.calibration.empty() && engine.calibration.find("seeded random") == std::string::npos;
  const std::string method = engine.calibration.substr(0, engine.calibration.find(" over "));
  std::string line = cat("tessera build MODEL -o ", quoted(path), " --target ", info(engine.target).name);
  const auto add = [&](bool said, const char* flag, const std::string& value) {
    if (said) line += cat(" ", flag, " ", quoted(value));
  };
  add(engine.recipe.empty(), "--precision", engine.precision);
  add(!engine.recipe.empty(), "--recipe", engine.recipe);
  add(words.attention == "fp8", "--attention", words.attention);
  add(making.promoted, "--accumulate", "promoted");
  add(!making.sparsity.empty(), "--sparsity", making.sparsity);
  add(!making.refined.empty(), "--refine", making.refined);
  for (const std::string& a : engine.allowed) {
    const size_t equals = a.rfind('=');  // a sentence of --precision auto may stand there too
    add(equals != a.npos && find_precision(a.substr(equals + 1)) != nullptr, "--allow", a);
  }
  std::string sizes;
  for (const int64_t b : batches) sizes += cat(sizes.empty() ? "" : ",", b);
  add(!sizes.empty(), "--batch", sizes);
  add(samples, "--calib", "SAMPLES");
  add(samples && parse_range_method(method).ok() && method != to_string(RangeMethod{}), "--calib-method", method);
  add(samples && !engine.preprocess.empty(), "--preprocess", engine.preprocess);
  return line;
}

}  // namespace tessera
