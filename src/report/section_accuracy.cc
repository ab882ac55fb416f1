// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/status.h"
#include "report/accuracy_chart.h"
#include "report/figures.h"
#include "report/sections.h"

namespace tessera {
namespace {

std::string cosine_words(double cosine) { return cosine > 1 - kLeastDistance ? "1" : decimals(cosine, 7); }

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
  ListBlock verdicts;
  std::vector<PlacedEngine> placed;
  const bool latency = all_have_latency(input);
  for (const ReportEntry& e : input.entries) {
    if (!e.accuracy) {
      if (!e.no_accuracy.empty()) verdicts.items.emplace_back(cat(e.name, ": ", e.no_accuracy));
      continue;
    }
    for (const OutputAccuracy& o : e.accuracy->outputs) {
      std::vector<TableCell> row = {e.name, TableCell::code(o.output), o.inputs,
                                    TableCell(std::to_string(o.samples), static_cast<double>(o.samples))};
      if (o.same_of) {
        row.insert(row.end(), {cat(o.same_of->first, " of ", o.same_of->second, " the same"), "-", "-"});
      } else {
        row.emplace_back(cosine_words(o.cosine_mean), o.cosine_mean);
        row.emplace_back(cosine_words(o.cosine_worst), o.cosine_worst);
        row.emplace_back(rounded(o.relative_l2, 2), o.relative_l2);
      }
      t.rows.push_back(std::move(row));
    }
    if (!e.accuracy->arithmetic.empty())
      verdicts.items.emplace_back(cat(e.name, ", arithmetic: ", e.accuracy->arithmetic));
    if (!e.accuracy->quantization.empty())
      verdicts.items.emplace_back(cat(e.name, ", quantization: ", e.accuracy->quantization));
    const double ms = latency ? time_of(e.profile) : e.profile.kernel_us() / 1e3;
    if (const auto cosine = e.accuracy->cosine()) placed.push_back({e.name, ms, *cosine, false});
  }
  if (!t.rows.empty()) s.blocks.push_back(std::move(t));
  if (input.compared.empty()) {
    if (auto chart = accuracy_chart(placed, latency ? "latency, ms" : "kernel time, ms"))
      s.blocks.push_back(std::move(*chart));
  }
  if (!verdicts.items.empty()) s.blocks.push_back(std::move(verdicts));
  return s;
}

}  // namespace tessera
