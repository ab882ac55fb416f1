// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr size_t kNameColumns = 60;  // of a sentence
constexpr size_t kWorst = 5;         // layers that are shown where not all are asked for

// Nothing differs: JSON has no infinity.
Json decibels(const Closeness& c) { return c.relative_l2 > 0 && c.finite ? Json(c.sqnr_db()) : Json(); }
std::string decibel_text(const Closeness& c) {
  return c.relative_l2 > 0 && c.finite ? fmt::format("{:.1f}", c.sqnr_db()) : std::string("-");
}

Json closeness_json(const Closeness& c) {
  return {{"cosine_mean", c.cosine_mean},   {"cosine_worst", c.cosine_worst},
          {"centred_mean", c.centred_mean}, {"centred_worst", c.centred_worst},
          {"relative_l2", c.relative_l2},   {"sqnr_db", decibels(c)},
          {"worst_sample", c.worst_sample}, {"finite", c.finite}};
}

double of_bound(const LayerReport& l) { return !l.ok() ? INFINITY : l.bound > 0 ? l.relative_l2 / l.bound : 0; }

void print_layers(const VerifyCheck& check, bool all) {
  const VerifyReport& report = check.report;
  std::vector<size_t> shown;
  for (size_t i = 0; i < report.layers.size(); ++i) shown.push_back(i);
  std::string which = "each";
  if (!all && shown.size() > kWorst) {
    std::stable_sort(shown.begin(), shown.end(),
                     [&](size_t a, size_t b) { return of_bound(report.layers[a]) > of_bound(report.layers[b]); });
    shown.resize(kWorst);
    const size_t stray = static_cast<size_t>(report.first_stray);
    if (report.first_stray >= 0 && std::find(shown.begin(), shown.end(), stray) == shown.end()) shown.back() = stray;
    std::sort(shown.begin(), shown.end());
    which = cat("the ", shown.size(), " nearest to their bound (--all: each)");
  }
  Table table({">step", "layer", "variant", "check", ">differ", ">rel. L2", ">bound", ""});
  for (const size_t i : shown) {
    const LayerReport& l = report.layers[i];
    const bool first = static_cast<int>(i) == report.first_stray;
    table.add({std::to_string(i + 1), l.layer, l.variant, l.emulated ? "emulated" : "bounded",
               fmt::format("{} / {}", l.differ, l.may_differ), fmt::format("{:.1e}", l.relative_l2),
               fmt::format("{:.1e}", l.bound),
               l.ok()  ? "ok"
               : first ? "STRAYS FIRST"
                       : "STRAYS"});
  }
  fmt::print(
      "\n{}\n{}",
      wrap(cat("plan ", report.plan, ", ", check.what, ": ",
               plural(static_cast<int64_t>(report.layers.size()), "layer"), report.layers.size() == 1 ? "" : ", each",
               " compared with what its kernel must give for the inputs that the layer read; ", which),
           0, 2),
      table.text());
}

double largest_share(const VerifyReport& report) {
  double most = 0;
  for (const LayerReport& l : report.layers) most = std::max(most, of_bound(l));
  return most;
}

// Of the checks of one plan, the first of those that come nearest to a bound: one table per plan tells enough.
bool nearest_to_bound(const std::vector<VerifyCheck>& checks, const VerifyCheck& check) {
  for (const VerifyCheck& c : checks) {
    if (c.report.plan != check.report.plan || c.report.layers.empty() || &c == &check) continue;
    const double there = largest_share(c.report), here = largest_share(check.report);
    if (there > here || (there == here && &c < &check)) return false;
  }
  return true;
}

std::vector<std::string> closeness_cells(const Closeness& c) {
  return {fmt::format("{:.5f}", c.cosine_mean),
          fmt::format("{:.5f}", c.cosine_worst),
          fmt::format("{:.5f}", c.centred_mean),
          fmt::format("{:.1e}", c.relative_l2),
          decibel_text(c),
          std::to_string(c.worst_sample)};
}

// Whole numbers are counted: the columns of distances say nothing of them.
std::vector<std::string> quality_cells(const OutputQuality& o) {
  if (!o.whole) return closeness_cells(o.closeness);
  return {fmt::format("{} of {}", o.whole->same, o.whole->all), "-", "-", "-", "-", "-"};
}

void print_layer_quality(const QuantizationReport& report, bool all) {
  std::vector<size_t> shown;
  for (size_t i = 0; i < report.layers.size(); ++i) {
    if (report.layers[i].compared) shown.push_back(i);
  }
  if (shown.empty()) return;
  const size_t layers = shown.size();
  std::string which = "each";
  if (!all && shown.size() > kWorst) {
    std::stable_sort(shown.begin(), shown.end(),
                     [&](size_t a, size_t b) { return report.layers[a].added > report.layers[b].added; });
    shown.resize(kWorst);
    std::sort(shown.begin(), shown.end());
    which = cat("the ", shown.size(), " that add most (--all: each)");
  }
  Table table({">step", "layer", "types", ">cosine", ">worst", ">centred", ">rel. L2", ">dB", ">sample", ">adds"});
  for (const size_t i : shown) {
    const LayerQuality& q = report.layers[i];
    std::vector<std::string> row = {std::to_string(i + 1), q.layer, q.types};
    for (std::string& cell : closeness_cells(q.closeness)) row.push_back(std::move(cell));
    row.push_back(fmt::format("{:.1e}", std::max(0.0, q.added)));
    table.add(std::move(row));
  }
  fmt::print("\n{}\n{}",
             wrap(cat("quantization error on ", report.what, ", ", samples_words(report.samples, report.of),
                      report.samples == 1 && report.of == 0 ? " sample: " : " samples: ",
                      plural(static_cast<int64_t>(layers), "layer"),
                      " beside the same layer in f32, errors of the layers before included; ", which),
                  0, 2),
             table.text());
}

}  // namespace

std::string samples_words(int64_t samples, int64_t of) {
  return of > 0 ? cat(samples, " of ", of) : std::to_string(samples);
}

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

void print_checks(const std::vector<VerifyCheck>& checks, bool all) {
  Table table({"plan", "inputs", ">samples", "output", ">cosine mean", ">worst", ">relative L2", ">bound", ""});
  for (const VerifyCheck& c : checks) {
    const std::string samples = samples_words(c.report.samples, c.report.of);
    for (const OutputReport& o : c.report.outputs) {
      table.add({c.report.plan, c.what, samples, o.name, fmt::format("{:.7f}", o.cosine_mean),
                 fmt::format("{:.7f}", o.cosine_worst), fmt::format("{:.2e}", o.relative_l2),
                 fmt::format("{:.2e}", o.bound), o.ok ? "ok" : "FAILED"});
    }
    for (const ValueReport& v : c.report.values) {
      if (all || !v.ok())
        table.add({c.report.plan, c.what, samples, v.name, "", "", fmt::format("{:.2e}", v.relative_l2),
                   fmt::format("{:.2e}", v.bound), v.ok() ? "ok" : "FAILED"});
    }
  }
  fmt::print("{}\n{}",
             wrap(cat("arithmetic error: outputs", all ? " and values inside the model" : "",
                      " compared with the golden run; each in a run that starts from the golden value before it, so "
                      "errors do not add up"),
                  0, 2),
             table.text());
  for (const VerifyCheck& c : checks) {
    if (!c.report.layers_note.empty() && &c == &checks.back()) fmt::print("\n{}\n", wrap(c.report.layers_note, 0, 2));
    if (!c.report.layers.empty() && (all || c.report.first_stray >= 0 || nearest_to_bound(checks, c)))
      print_layers(c, all);
  }
}

void print_quantization(const std::vector<QuantizationReport>& reports, bool all) {
  Table table({"inputs", ">samples", "output", ">cosine", ">worst", ">centred", ">rel. L2", ">dB", ">sample"});
  bool any = false;
  for (const QuantizationReport& r : reports) {
    for (const OutputQuality& o : r.outputs) {
      std::vector<std::string> row = {r.what, samples_words(r.samples, r.of), o.name};
      for (std::string& cell : quality_cells(o)) row.push_back(std::move(cell));
      table.add(std::move(row));
      any = true;
    }
  }
  if (any) fmt::print("\nquantization error: the golden plan beside the model in f32\n{}", table.text());
  for (const QuantizationReport& r : reports) {
    print_layer_quality(r, all);
    for (const std::string& note : r.notes) fmt::print("{}\n", wrap(printable(cat(r.what, ": ", note)), 2, 4));
  }
}

QuantizationVerdict judge_quantization(const std::vector<const QuantizationReport*>& reports,
                                       std::optional<double> min_cosine, std::optional<double> of_build) {
  QuantizationVerdict v{.gate = min_cosine ? min_cosine : of_build, .gate_of_build = !min_cosine && of_build};
  const auto farther = [](const OutputQuality& a, const OutputQuality& b) {
    if (a.whole && b.whole) return a.whole->share() < b.whole->share();
    if (a.whole || b.whole) return !a.whole;  // a cosine says more than a count
    return !(a.closeness.cosine_worst >= b.closeness.cosine_worst);
  };
  for (const QuantizationReport* r : reports) {
    for (const OutputQuality& o : r->outputs) {
      if (v.output == nullptr || farther(o, *v.output)) v.report = r, v.output = &o;
    }
  }
  return v;
}

std::string QuantizationVerdict::sentence() const {
  if (output == nullptr)
    return "not measured: the engine holds no outputs of its model (--model FILE compares with it)";
  const std::string found =
      output->whole ? fmt::format("{} of {} whole numbers are the model's", output->whole->same, output->whole->all)
                    : fmt::format("worst cosine {:.5f}, mean {:.5f} with the model", output->closeness.cosine_worst,
                                  output->closeness.cosine_mean);
  const std::string on =
      cat(samples_words(report->samples, report->of), report->samples == 1 && report->of == 0 ? " sample" : " samples",
          " (", shorten(report->what, kNameColumns), ")");
  const std::string wanted =
      !gate ? "no gate"
            : fmt::format("gate {}: mean of at least {:.6g}", gate_of_build ? "of the build" : "--min-cosine", *gate);
  return cat(found, ", output '", shorten(output->name, kNameColumns), "', on ", on, "; ", wanted);
}

Json QuantizationVerdict::json() const {
  Json j = {{"sentence", sentence()},
            {"gate", gate ? Json(*gate) : Json()},
            {"gate_of", !gate ? Json() : Json(gate_of_build ? "build" : "verify")}};
  if (output == nullptr) return j;
  j.update({{"output", output->name}, {"what", report->what}, {"samples", report->samples}});
  if (output->whole) {
    j.update({{"same", output->whole->same}, {"of", output->whole->all}});
  } else {
    j.update({{"cosine_worst", output->closeness.cosine_worst}, {"cosine_mean", output->closeness.cosine_mean}});
  }
  return j;
}

std::string failure_of(const std::vector<VerifyCheck>& checks) {
  const VerifyCheck* failed = nullptr;
  bool agree = false;
  for (const VerifyCheck& c : checks) {
    if (c.report.first_stray >= 0) return cat("plan ", c.report.plan, ", ", c.what, ": ", c.report.sentence);
    if (!c.report.ok && failed == nullptr) failed = &c;
    agree = agree || (c.report.ok && !c.report.layers.empty());
  }
  if (failed == nullptr) return "";
  std::string text = cat("plan ", failed->report.plan, ", ", failed->what, ": ", failed->report.sentence);
  if (failed->what == "golden values" && agree && !failed->report.graph_differs) {
    text +=
        "; every layer agrees with its reference on the weights that are in the file, so they are not the weights of "
        "the build: build the engine again";
  }
  return text;
}

}  // namespace tessera
