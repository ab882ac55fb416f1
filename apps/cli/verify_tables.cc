// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr size_t kWorst = 5;  // layers that are shown where not all are asked for

std::string decibel_text(const Closeness& c) {
  return c.relative_l2 > 0 && c.finite ? fmt::format("{:.1f}", c.sqnr_db()) : std::string("-");
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

}  // namespace tessera
