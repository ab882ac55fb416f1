// SPDX-License-Identifier: Apache-2.0
#include "verify/verify_json.h"

#include "verify/compare_engine.h"

namespace tessera {

using Json = nlohmann::ordered_json;

namespace {

// As the commands print it.
std::string json_text(const Json& object) { return object.dump(2, ' ', false, Json::error_handler_t::replace); }

// Nothing differs: JSON has no infinity.
Json decibels(const Closeness& c) { return c.relative_l2 > 0 && c.finite ? Json(c.sqnr_db()) : Json(); }
Json closeness_json(const Closeness& c) {
  return {{"cosine_mean", c.cosine_mean},   {"cosine_worst", c.cosine_worst},
          {"centred_mean", c.centred_mean}, {"centred_worst", c.centred_worst},
          {"relative_l2", c.relative_l2},   {"sqnr_db", decibels(c)},
          {"worst_sample", c.worst_sample}, {"finite", c.finite}};
}

Json quantization_json(const QuantizationReport& report) {
  Json outputs = Json::array(), layers = Json::array();
  for (const OutputQuality& o : report.outputs) {
    Json j = {{"name", o.name}};
    if (o.whole) {
      j.update({{"same", o.whole->same}, {"of", o.whole->all}});
    } else {
      j.update(closeness_json(o.closeness));
    }
    outputs.push_back(std::move(j));
  }
  for (const LayerQuality& q : report.layers) {
    if (!q.compared && q.found.empty()) continue;
    Json j = {{"layer", q.layer}, {"op", q.op}, {"types", q.types}};
    if (q.compared) {
      j.update(closeness_json(q.closeness));
      j["adds"] = q.added;
    }
    if (q.weight_error > 0) j["weight_relative_l2"] = q.weight_error;
    j["found"] = Json::array();
    for (const Finding& f : q.found) j["found"].push_back(f.text);
    layers.push_back(std::move(j));
  }
  return {{"what", report.what},
          {"samples", report.samples},
          {"samples_in_file", report.of > 0 ? Json(report.of) : Json()},
          {"outputs", outputs},
          {"layers", layers},
          {"faults", report.faults},
          {"notes", report.notes}};
}

Json verdict_json(const QuantizationVerdict& v) {
  const OutputQuality* const output = v.output;
  Json j = {{"sentence", v.sentence()},
            {"gate", v.gate ? Json(*v.gate) : Json()},
            {"gate_of", !v.gate ? Json() : Json(v.gate_of_build ? "build" : "verify")}};
  if (output == nullptr) return j;
  j.update({{"output", output->name}, {"what", v.report->what}, {"samples", v.report->samples}});
  if (output->whole) {
    j.update({{"same", output->whole->same}, {"of", output->whole->all}});
  } else {
    j.update({{"cosine_worst", output->closeness.cosine_worst}, {"cosine_mean", output->closeness.cosine_mean}});
  }
  return j;
}

}  // namespace

Json check_json(const VerifyCheck& c) {
  Json outputs = Json::array(), layers = Json::array();
  for (const OutputReport& o : c.report.outputs) {
    outputs.push_back({{"name", o.name},
                       {"cosine_mean", o.cosine_mean},
                       {"cosine_worst", o.cosine_worst},
                       {"centred_mean", o.closeness.centred_mean},
                       {"centred_worst", o.closeness.centred_worst},
                       {"worst_sample", o.closeness.worst_sample},
                       {"relative_l2", o.relative_l2},
                       {"sqnr_db", decibels(o.closeness)},
                       {"bound", o.bound},
                       {"ok", o.ok}});
  }
  for (const LayerReport& l : c.report.layers) {
    layers.push_back({{"layer", l.layer},
                      {"op", l.op},
                      {"variant", l.variant},
                      {"check", l.emulated ? "emulated" : "bounded"},
                      {"relative_l2", l.relative_l2},
                      {"bound", l.bound},
                      {"share", l.share},
                      {"results", l.results},
                      {"differ", l.differ},
                      {"may_differ", l.may_differ},
                      {"cosine", l.cosine},
                      {"ok", l.ok()}});
  }
  Json values = Json::array();
  for (const ValueReport& v : c.report.values)
    values.push_back({{"name", v.name}, {"relative_l2", v.relative_l2}, {"bound", v.bound}, {"ok", v.ok()}});
  const int stray = c.report.first_stray;
  return {{"plan", c.report.plan},
          {"what", c.what},
          {"samples", c.report.samples},
          {"samples_in_file", c.report.of > 0 ? Json(c.report.of) : Json()},
          {"ok", c.report.ok},
          {"sentence", c.report.sentence},
          {"machine", c.report.machine},
          {"first_stray", stray < 0 ? Json() : Json(c.report.layers[static_cast<size_t>(stray)].layer)},
          {"layers_note", c.report.layers_note},
          {"outputs", outputs},
          {"values", values},
          {"layers", layers}};
}

std::string comparison_json(const std::string& path, const Engine& engine, const Findings& found,
                            const Verdicts& verdicts) {
  Json all = Json::array(), errors = Json::array();
  for (const VerifyCheck& c : found.checks) all.push_back(check_json(c));
  for (const Measured& m : found.quantization) errors.push_back(quantization_json(m.report));
  Json of_quantization = verdict_json(verdicts.quantization);
  of_quantization["ok"] = verdicts.precision.empty();
  const VerifyReport& last = found.checks.back().report;
  const std::string failure = verdicts.failure();
  return json_text({{"engine", path},
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

}  // namespace tessera
