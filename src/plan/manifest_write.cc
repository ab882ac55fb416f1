// SPDX-License-Identifier: Apache-2.0
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "plan/engine_file.h"
#include "plan/manifest.h"
#include "plan/storage_names.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and no infinities: they are words.
Json number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

Json attrs_json(const Attrs& attrs) {
  Json out = Json::object();
  for (const auto& [key, value] : attrs.all()) {
    Json& a = out[key] = Json::object();
    if (const auto* i = std::get_if<int64_t>(&value)) a["int"] = *i;
    if (const auto* f = std::get_if<double>(&value)) a["float"] = number(*f);
    if (const auto* w = std::get_if<std::string>(&value)) a["word"] = *w;
    if (const auto* l = std::get_if<std::vector<int64_t>>(&value)) a["list"] = *l;
  }
  return out;
}

Json program_json(const Program& program) {
  Json out = Json::array();
  for (const Step& s : program.steps) {
    Json step = {{"step", name_of(s.kind)}};
    if (s.fn != Unary::identity) step["fn"] = name_of(s.fn);
    if (s.operand != -1) step["operand"] = s.operand;
    if (const size_t count = form_of(s.kind).numbers; count > 0)
      step["numbers"] = std::vector<double>(s.numbers.begin(), s.numbers.begin() + static_cast<std::ptrdiff_t>(count));
    out.push_back(std::move(step));
  }
  return out;
}

Json tensor_json(const PlanTensor& t) {
  Json out = {{"name", t.name},
              {"shape", t.desc.shape},
              {"type", to_string(t.desc.type)},
              {"strides", t.desc.strides},
              {"storage", kStorageNames[static_cast<size_t>(t.storage)]},
              {"index", t.index},
              {"offset", t.offset_bytes}};
  if (t.desc.layout.codes != Layout::kRows) out["layout"] = name_of(t.desc.layout.codes);
  if (t.desc.layout.scales != Layout::kRows) out["scales_layout"] = name_of(t.desc.layout.scales);
  if (t.desc.constant) out["constant"] = true;
  if (t.scale != -1) out["scale"] = t.scale;
  if (t.scale2 != -1) out["scale2"] = t.scale2;
  return out;
}

Json step_json(const PlanStep& s) {
  Json refusals = Json::array();
  for (const Refusal& r : s.refusals) refusals.push_back({{"variant", r.variant}, {"reason", r.reason}});
  Json out = {{"layer", s.layer},
              {"op", s.op},
              {"variant", s.variant},
              {"role", s.role},
              {"asked", s.asked},
              {"stored", s.stored},
              {"computed", s.computed},
              {"arithmetic", s.arithmetic},
              {"in", s.in},
              {"out", s.out},
              {"attrs", attrs_json(s.attrs)},
              {"then", program_json(s.then)},
              {"workspace", {{"offset", s.workspace_offset}, {"bytes", s.workspace_bytes}}},
              {"refusals", std::move(refusals)}};
  if (!s.config.empty()) out["config"] = s.config;
  if (!s.slow.empty()) out["slow"] = s.slow;
  if (s.chain >= 0) out["chain"] = s.chain;
  return out;
}

Json ports_json(const std::vector<Port>& ports) {
  Json out = Json::array();
  for (const Port& p : ports) out.push_back({{"name", p.name}, {"tensor", p.tensor}});
  return out;
}

Json plan_json(const Plan& plan) {
  Json tensors = Json::array(), steps = Json::array();
  for (const PlanTensor& t : plan.tensors) tensors.push_back(tensor_json(t));
  for (const PlanStep& s : plan.steps) steps.push_back(step_json(s));
  Json out = {{"name", plan.name},
              {"arch", info(plan.arch).name},
              {"batch", plan.batch},
              {"arena_bytes", plan.arena_bytes},
              {"inputs", ports_json(plan.inputs)},
              {"outputs", ports_json(plan.outputs)},
              {"steps", std::move(steps)},
              {"tensors", std::move(tensors)}};
  if (plan.graph != Plan().graph) out["graph"] = plan.graph;
  if (!plan.sizes.empty()) out["sizes"] = plan.sizes;
  if (!plan.tuning.empty()) out["tuning"] = plan.tuning;
  if (!plan.golden.empty()) out["golden"] = plan.golden;
  return out;
}

Json lengths_json(const Lengths& lengths) {
  Json sizes = Json::array();
  for (const auto& [name, why] : lengths.why_exact) {
    sizes.push_back({{"name", name}, {"padded", why.empty()}});
    if (!why.empty()) sizes.back()["why"] = why;
  }
  Json out = {{"sizes", std::move(sizes)}};
  for (const auto& [key, axes] : {std::pair{"inputs", &lengths.inputs}, {"outputs", &lengths.outputs}}) {
    Json& list = out[key] = Json::array();
    for (const LengthAxis& a : *axes)
      list.push_back({{"port", a.port}, {"axis", a.axis}, {"per", a.per}, {"plus", a.plus}});
  }
  return out;
}

// Hands out the places of the pieces in the order of data_pieces.
class Places {
 public:
  Json next(const Bytes& piece, std::optional<uint64_t> checksum = {}) {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016" PRIx64, checksum ? *checksum : checksum64(piece.span()));
    Json place = {{"offset", at_}, {"bytes", piece.size()}, {"checksum", digits}};
    at_ = round_up(at_ + static_cast<int64_t>(piece.size()), kDataAlign);
    return place;
  }

 private:
  int64_t at_ = 0;
};

Json golden_json(const std::vector<GoldenTensor>& tensors, Places& places) {
  Json out = Json::array();
  for (const GoldenTensor& t : tensors) {
    out.push_back({{"name", t.name}, {"shape", t.shape}, {"type", to_string(t.type)}, {"data", places.next(t.data)}});
  }
  return out;
}

void add_outputs(const GoldenForm& form, Places& places, Json& out) {
  out["outputs"] = golden_json(form.outputs, places);
  Json& bounds = out["bounds"] = Json::array();
  for (double b : form.bounds) bounds.push_back(number(b));
}

void add_values(const GoldenForm& form, Places& places, Json& out) {
  std::vector<GoldenTensor> values;
  for (const GoldenValue& v : form.values) values.push_back(v.tensor);
  out["values"] = golden_json(values, places);
  for (size_t i = 0; i < values.size(); ++i) out["values"][i]["bound"] = number(form.values[i].bound);
}

// The first form stands beside what all of them share.
Json golden_json(const Golden& golden, Places& places) {
  const GoldenForm none, &first = golden.forms.empty() ? none : golden.forms[0];
  Json out = Json::object();
  out["inputs"] = golden_json(golden.inputs, places);
  if (first.plan != kGoldenPlan) out["plan"] = first.plan;  // the first golden plan has no values
  add_outputs(first, places, out);
  out["original"] = golden_json(golden.original, places);
  add_values(first, places, out);
  out["from"] = golden.from;
  if (golden.within_amax) out["within_amax"] = *golden.within_amax;
  if (golden.min_cosine) out["min_cosine"] = number(*golden.min_cosine);
  for (size_t i = 1; i < golden.forms.size(); ++i) {
    Json form = {{"plan", golden.forms[i].plan}};
    add_outputs(golden.forms[i], places, form);
    add_values(golden.forms[i], places, form);
    if (!golden.forms[i].inputs.empty()) {
      form["inputs"] = golden_json(golden.forms[i].inputs, places);
      form["original"] = golden_json(golden.forms[i].original, places);
    }
    out["forms"].push_back(std::move(form));
  }
  return out;
}

}  // namespace

std::vector<std::span<const uint8_t>> data_pieces(const Engine& engine) {
  std::vector<std::span<const uint8_t>> pieces;
  for (const EngineConstant& c : engine.constants) pieces.push_back(c.data.span());
  for (const GoldenTensor& t : engine.golden.inputs) pieces.push_back(t.data.span());
  const auto add_outputs = [&](const GoldenForm& form) {
    for (const GoldenTensor& t : form.outputs) pieces.push_back(t.data.span());
  };
  const auto add_values = [&](const GoldenForm& form) {
    for (const GoldenValue& v : form.values) pieces.push_back(v.tensor.data.span());
  };
  const auto& forms = engine.golden.forms;
  if (!forms.empty()) add_outputs(forms[0]);
  for (const GoldenTensor& t : engine.golden.original) pieces.push_back(t.data.span());
  for (size_t i = 0; i < forms.size(); ++i) {
    if (i > 0) add_outputs(forms[i]);
    add_values(forms[i]);
    for (const GoldenTensor& t : forms[i].inputs) pieces.push_back(t.data.span());
    for (const GoldenTensor& t : forms[i].original) pieces.push_back(t.data.span());
  }
  return pieces;
}

std::string write_manifest(const Engine& engine) {
  Json out = {{"model", engine.model},
              {"precision", engine.precision},
              {"target", info(engine.target).name},
              {"calibration", engine.calibration},
              {"allowed", engine.allowed},
              {"producer", engine.producer}};
  if (!engine.weights.empty()) out["weights"] = engine.weights;
  if (!engine.preprocess.empty()) out["preprocess"] = engine.preprocess;
  if (!engine.recipe.empty()) out["recipe"] = engine.recipe;
  if (!engine.refinements.empty()) out["refinements"] = engine.refinements;
  if (!engine.refined_weights.empty()) out["refined_weights"] = engine.refined_weights;
  if (!engine.divided_layers.empty()) out["divided_layers"] = engine.divided_layers;
  Places places;
  Json& constants = out["constants"] = Json::array();
  for (const EngineConstant& c : engine.constants)
    constants.push_back({{"name", c.name}, {"data", places.next(c.data, c.checksum)}});
  Json& states = out["states"] = Json::array();
  for (const EngineState& s : engine.states) states.push_back({{"name", s.name}, {"bytes", s.bytes}});
  if (!engine.schedule.empty()) {
    Json& schedule = out["schedule"] = Json::array();
    for (const ScheduleItem& item : engine.schedule) schedule.push_back({{"graph", item.graph}, {"times", item.times}});
  }
  if (!engine.lengths.none()) out["lengths"] = lengths_json(engine.lengths);
  out["golden"] = golden_json(engine.golden, places);
  Json& plans = out["plans"] = Json::array();
  for (const Plan& p : engine.plans) plans.push_back(plan_json(p));
  // Names come from other people's models: bytes that are no UTF-8 are replaced, not an error.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string manifest_json(const Engine& engine, bool scales) {
  if (!scales) return write_manifest(engine);
  Json manifest = Json::parse(write_manifest(engine));
  for (const Plan& plan : engine.plans) {
    for (const PlanTensor& t : plan.tensors) {
      for (const int at : {t.scale, t.scale2}) {
        if (at == -1) continue;
        const PlanTensor& scale = plan.tensors[static_cast<size_t>(at)];
        if (scale.storage != Storage::kConstant) continue;
        Json& constant = manifest["constants"][static_cast<size_t>(scale.index)];
        if (constant.contains("numbers")) continue;
        std::vector<double> numbers(static_cast<size_t>(elements(scale.desc.shape)));
        info(scale.desc.type.element)
            .decode_f64(engine.constants[static_cast<size_t>(scale.index)].data.data() + scale.offset_bytes, 0,
                        static_cast<int64_t>(numbers.size()), numbers.data());
        constant["numbers"] = numbers;
      }
    }
  }
  return manifest.dump();
}

}  // namespace tessera
