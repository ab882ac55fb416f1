// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/status.h"
#include "report/figures.h"
#include "report/sections.h"

namespace tessera {
namespace {

TableBlock percentile_table(const ReportInput& input) {
  TableBlock t{.caption = "Latency of whole runs, milliseconds.", .columns = {{"", false}}, .rows = {}};
  for (const char* title : {"mean", "median", "p90", "p95", "p99", "least", "most", "runs"})
    t.columns.push_back({title, true});
  for (const ReportEntry& e : input.entries) {
    if (!e.profile.latency) continue;
    const Latency& l = *e.profile.latency;
    std::vector<TableCell> row = {e.name};
    for (const double v : {l.mean_ms, l.median_ms, l.p90_ms, l.p95_ms, l.p99_ms, l.least_ms, l.most_ms})
      row.emplace_back(decimals(v, 3), v);
    row.emplace_back(std::to_string(l.runs), static_cast<double>(l.runs));
    t.rows.push_back(std::move(row));
  }
  return t;
}

// What of one run is not kernel time, where the profile tells.
TableBlock rest_table(const ReportInput& input) {
  TableBlock t{.caption =
                   "One run beside its kernels, microseconds. Gap: no kernel ran; overlap: more than one did, in the "
                   "times of all of them; early: launched beside the one before, in no kernel's time; "
                   "enqueue: host time to launch the run; profiled: the run while it was profiled.",
               .columns = {{"", false}},
               .rows = {}};
  const std::pair<const char*, std::optional<double> Profile::*> columns[] = {
      {"gap", &Profile::gap_us},
      {"overlap", &Profile::overlap_us},
      {"early", &Profile::early_us},
      {"enqueue", &Profile::enqueue_us},
      {"copies in", &Profile::host_to_device_us},
      {"copies out", &Profile::device_to_host_us}};
  t.columns.push_back({"kernels", true});
  std::vector<std::optional<double> Profile::*> used;
  for (const auto& [title, field] : columns) {
    if (std::none_of(input.entries.begin(), input.entries.end(),
                     [&](const ReportEntry& e) { return (e.profile.*field).has_value(); }))
      continue;
    t.columns.push_back({title, true});
    used.push_back(field);
  }
  const bool profiled = std::any_of(input.entries.begin(), input.entries.end(),
                                    [](const ReportEntry& e) { return e.profile.profiled_ms.has_value(); });
  if (used.empty() && !profiled) return t;
  if (profiled) t.columns.push_back({"profiled", true});
  for (const ReportEntry& e : input.entries) {
    std::vector<TableCell> row = {e.name, TableCell(decimals(e.profile.kernel_us(), 1), e.profile.kernel_us())};
    const auto add = [&](const std::optional<double>& v) {
      row.push_back(v ? TableCell(decimals(*v, 1), *v) : TableCell("-"));
    };
    for (const auto field : used) add(e.profile.*field);
    if (profiled) add(e.profile.profiled_ms ? std::optional(*e.profile.profiled_ms * 1e3) : std::nullopt);
    t.rows.push_back(std::move(row));
  }
  return t;
}

}  // namespace

Section latency_section(const ReportInput& input) {
  Section s{.heading = "Latency", .blocks = {}};
  SpreadChart chart{.unit = "ms", .rows = {}};
  for (const ReportEntry& e : input.entries) {
    if (!e.profile.latency) continue;
    const Latency& l = *e.profile.latency;
    chart.rows.push_back({e.name, l.least_ms, l.median_ms, l.mean_ms, l.p90_ms, l.p95_ms, l.p99_ms, l.most_ms});
  }
  if (!chart.rows.empty()) {
    s.blocks.push_back(ChartBlock{"How latency is spread.", std::move(chart),
                                  "Pale from the least to the median, dark from there to p90; thin marks at p95 and "
                                  "p99, a diamond at the mean, a "
                                  "line to the slowest run, an arrow where that lies beyond the axis."});
    s.blocks.push_back(percentile_table(input));
  }
  if (TableBlock rest = rest_table(input); !rest.rows.empty()) s.blocks.push_back(std::move(rest));
  for (const ReportEntry& e : input.entries) {
    const Profile& p = e.profile;
    if (!p.latency || !p.profiled_ms || p.latency->median_ms <= 0) continue;
    const double cost = *p.profiled_ms / p.latency->median_ms - 1;
    if (cost > 0.05)
      s.blocks.push_back(TextBlock{cat(e.name, ": a run takes ", share_words(cost),
                                       " longer while it is profiled; its kernel times may be too long by as much."),
                                   TextBlock::Kind::kWarning});
  }
  return s;
}

}  // namespace tessera
