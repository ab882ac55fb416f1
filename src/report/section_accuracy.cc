// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "report/figures.h"
#include "report/sections.h"

namespace tessera {
namespace {

// Below this f32 outputs tell nothing apart, and a log axis needs an end.
constexpr double kLeastDistance = 1e-8;

std::string distance_words(double cosine) { return cosine > 1 - kLeastDistance ? "1" : fixed(cosine, 7); }

// Accuracy over time. `front`: names of those that no other beats.
struct Placed {
  std::string name;
  double ms, cosine;
  bool front;
};
std::optional<ChartBlock> accuracy_chart(std::vector<Placed> all, const std::string& time) {
  if (all.size() < 2) return {};
  std::sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) { return a.ms < b.ms; });
  const bool any_front = std::any_of(all.begin(), all.end(), [](const Placed& p) { return p.front; });
  ScatterChart chart{.x = {time, false}, .y = {"1 - cosine with the model (lower is better)", true}};
  chart.front = any_front;
  chart.series =
      any_front ? std::vector<std::string>{"on the Pareto front", "beaten in all three"} : std::vector<std::string>{};
  for (const Placed& p : all) {
    const double distance = std::max(1 - p.cosine, kLeastDistance);
    const int shape = any_front && !p.front ? 4 : 0;
    chart.points.push_back(
        {p.ms, distance, 0.1, shape, p.name, cat(p.name, ": ", fixed(p.ms, 3), " ms, cosine ", fixed(p.cosine, 7))});
  }
  std::string caption = "Accuracy against speed: the lower left corner is best. ";
  if (any_front) caption += "Filled: on the Pareto front of accuracy, latency and size. ";
  if (std::any_of(all.begin(), all.end(), [](const Placed& p) { return 1 - p.cosine < kLeastDistance; }))
    caption += "Distances below 1e-8 are drawn there.";
  return ChartBlock{std::move(caption), std::move(chart)};
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
  ListBlock verdicts;
  std::vector<Placed> placed;
  const bool latency = all_have_latency(input);
  for (const ReportEntry& e : input.entries) {
    if (!e.accuracy) {
      if (!e.no_accuracy.empty()) verdicts.items.push_back(cat(e.name, ": ", e.no_accuracy));
      continue;
    }
    for (const OutputAccuracy& o : e.accuracy->outputs) {
      std::vector<TableCell> row = {e.name, TableCell::code(o.output), o.inputs,
                                    TableCell(std::to_string(o.samples), static_cast<double>(o.samples))};
      if (o.same_of) {
        row.insert(row.end(), {cat(o.same_of->first, " of ", o.same_of->second, " the same"), "-", "-"});
      } else {
        row.emplace_back(distance_words(o.cosine_mean), o.cosine_mean);
        row.emplace_back(distance_words(o.cosine_worst), o.cosine_worst);
        row.emplace_back(rounded(o.relative_l2, 2), o.relative_l2);
      }
      t.rows.push_back(std::move(row));
    }
    if (!e.accuracy->arithmetic.empty())
      verdicts.items.push_back(cat(e.name, ", arithmetic: ", e.accuracy->arithmetic));
    if (!e.accuracy->quantization.empty())
      verdicts.items.push_back(cat(e.name, ", quantization: ", e.accuracy->quantization));
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

Section comparison_section(const ReportInput& input) {
  Section s{.heading = "Engines side by side", .blocks = {}};
  if (input.compared.empty()) return s;
  TableBlock t{.caption =
                   "Engines by latency, the mean of the runs' median. Front: no other is at least as good in "
                   "accuracy, latency per sample and size, and better in one.",
               .columns = {{"engine", false},
                           {"precision", false},
                           {"attention", false},
                           {"sparsity", false},
                           {"batch", true},
                           {"latency, ms", true},
                           {"samples/s", true},
                           {"size", true},
                           {"cosine", true},
                           {"front", false}},
               .rows = {}};
  ListBlock refused;
  std::vector<Placed> placed;
  const auto cell = [](const std::optional<double>& v, int decimals) {
    return v ? TableCell(fixed(*v, decimals), *v) : TableCell("-");
  };
  for (const ComparedEngine& c : input.compared) {
    if (!c.refused.empty()) {
      refused.items.push_back(cat(c.name, ": ", c.refused));
    }
    const auto or_none = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
    const auto bytes = c.bytes ? std::optional(static_cast<double>(*c.bytes)) : std::nullopt;
    t.rows.push_back({c.name, or_none(c.precision), or_none(c.attention), or_none(c.sparsity),
                      TableCell(c.batch > 0 ? std::to_string(c.batch) : "-", static_cast<double>(c.batch)),
                      cell(c.latency_ms, 3), cell(c.per_second, 1),
                      bytes ? TableCell(size_words(*bytes), *bytes) : TableCell("-"), cell(c.cosine, 6),
                      !c.refused.empty() ? "refused"
                      : c.on_front       ? "front"
                                         : ""});
    t.rows.back()[0].strong = c.on_front;
    if (c.latency_ms && c.cosine) placed.push_back({c.name, *c.latency_ms, *c.cosine, c.on_front});
  }
  s.blocks.push_back(std::move(t));
  if (!refused.items.empty()) {
    s.blocks.push_back(TextBlock{"Not built or not measured, and why:"});
    s.blocks.push_back(std::move(refused));
  }
  if (auto chart = accuracy_chart(placed, "latency, ms")) s.blocks.push_back(std::move(*chart));
  return s;
}

}  // namespace tessera
