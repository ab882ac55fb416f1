// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "report/accuracy_chart.h"
#include "report/figures.h"
#include "report/sections.h"

namespace tessera {
namespace {

std::string error_words(double error) {
  if (!(error > 0) || error >= 1e-4) return rounded(error, 2);
  const int power = static_cast<int>(std::floor(std::log10(error)));
  return cat(decimals(error / std::pow(10.0, power), 1), "e", power);
}

void add_rows(const ReportEntry& e, TableBlock& t) {
  for (const OutputAccuracy& o : e.accuracy->outputs) {
    std::vector<TableCell> row = {e.name, TableCell::code(o.output), o.inputs,
                                  TableCell(std::to_string(o.samples), static_cast<double>(o.samples))};
    if (o.same_of) {
      row.insert(row.end(), {cat(o.same_of->first, " of ", o.same_of->second, " the same"), "-", "-"});
    } else {
      row.emplace_back(decimals(o.cosine_mean, 7), o.cosine_mean);
      row.emplace_back(decimals(o.cosine_worst, 7), o.cosine_worst);
      row.emplace_back(error_words(o.relative_l2), o.relative_l2);
    }
    t.rows.push_back(std::move(row));
  }
}

// The verdicts of verify; one that several entries share is said once.
ListBlock verdicts_of(const ReportInput& input) {
  std::vector<std::pair<std::string, std::string>> said;  // sentence, names
  const auto say = [&](const std::string& sentence, const std::string& name) {
    const auto same = std::find_if(said.begin(), said.end(), [&](const auto& s) { return s.first == sentence; });
    if (same == said.end()) {
      said.emplace_back(sentence, name);
    } else {
      same->second += ", " + name;
    }
  };
  for (const ReportEntry& e : input.entries) {
    if (!e.accuracy) {
      if (!e.no_accuracy.empty()) say(e.no_accuracy, e.name);
      continue;
    }
    if (!e.accuracy->arithmetic.empty()) say(cat("arithmetic: ", e.accuracy->arithmetic), e.name);
    if (!e.accuracy->quantization.empty()) say(cat("quantization: ", e.accuracy->quantization), e.name);
  }
  ListBlock list;
  for (const auto& [sentence, names] : said) list.items.emplace_back(cat(names, ": ", sentence));
  return list;
}

}  // namespace

Section accuracy_section(const ReportInput& input) {
  Section s{.heading = "Accuracy", .blocks = {}};
  TableBlock t{.caption =
                   "Outputs of each engine's codes and scales in exact arithmetic, beside the model as written: "
                   "what the precision costs. Relative L2: the length of the difference by that of the model's.",
               .columns = {{"", false},
                           {"output", false},
                           {"inputs", false},
                           {"samples", true},
                           {"cosine, mean", true},
                           {"cosine, worst", true},
                           {"relative L2", true}},
               .rows = {}};
  std::vector<PlacedEngine> placed;
  const bool latency = all_have_latency(input);
  for (const ReportEntry& e : input.entries) {
    if (!e.accuracy) continue;
    add_rows(e, t);
    const double ms = latency ? time_of(e.profile) : e.profile.kernel_us() / 1e3;
    if (const auto cosine = e.accuracy->cosine()) placed.push_back({e.name, ms, *cosine, false});
  }
  if (!t.rows.empty()) s.blocks.push_back(std::move(t));
  if (input.compared.empty()) {
    if (auto chart = accuracy_chart(placed, latency ? "latency, ms" : "kernel time, ms"))
      s.blocks.push_back(std::move(*chart));
  }
  if (ListBlock verdicts = verdicts_of(input); !verdicts.items.empty()) s.blocks.push_back(std::move(verdicts));
  return s;
}

}  // namespace tessera
