// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "base/status.h"
#include "report/figures.h"
#include "report/kernel_groups.h"
#include "report/sections.h"

namespace tessera {
namespace {

constexpr size_t kColumns = 3;  // entries that have columns of their own

// A class of kernels, products apart by precision.
struct ClassRow {
  std::string name;
  int fill;
  int order;
  std::vector<double> us;  // per entry
};

std::vector<ClassRow> class_rows(const ReportInput& input) {
  std::vector<ClassRow> rows;
  std::map<std::string, size_t> places;
  for (size_t e = 0; e < input.entries.size(); ++e) {
    for (const KernelTime& k : input.entries[e].profile.kernels) {
      const std::string name = class_words(k);
      const auto [place, is_new] = places.try_emplace(name, rows.size());
      // Products by precision, the lowest first, then the classes as profile.h has them.
      const int bits = is_product(k.kernel_class) ? stored_bits(k.precision) : 0;
      if (is_new) {
        rows.push_back({name, fill_of(k), static_cast<int>(k.kernel_class) * 100 + (bits > 0 ? bits : 99),
                        std::vector<double>(input.entries.size())});
      }
      rows[place->second].us[e] += k.us;
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ClassRow& a, const ClassRow& b) { return a.order < b.order; });
  return rows;
}

ChartBlock class_chart(const ReportInput& input, const std::vector<ClassRow>& rows) {
  BarChart chart;
  for (const ClassRow& r : rows) {
    const bool known = std::any_of(chart.legend.begin(), chart.legend.end(),
                                   [&](const auto& l) { return l.first == r.fill && l.second == r.name; });
    if (!known) chart.legend.emplace_back(r.fill, r.name);
  }
  for (size_t e = 0; e < input.entries.size(); ++e) {
    const double all = input.entries[e].profile.kernel_us();
    BarChart::Row bar{.name = input.entries[e].name, .value = time_words(all), .segments = {}};
    bar.predicted = false;
    for (const ClassRow& r : rows) {
      if (r.us[e] > 0) bar.segments.push_back({r.fill, r.us[e], cat(r.name, " ", share_words(r.us[e] / all))});
    }
    chart.rows.push_back(std::move(bar));
  }
  return {"Kernel time of one run by class, on one scale. Products are apart by the precision of their operands.",
          std::move(chart)};
}

TableBlock class_table(const ReportInput& input, const std::vector<ClassRow>& rows) {
  TableBlock t{.caption = "Kernel time by class, milliseconds of one run and share of it.",
               .columns = {{"class", false}},
               .rows = {}};
  const bool change = input.entries.size() == 2;
  for (const ReportEntry& e : input.entries) {
    t.columns.push_back({cat(e.name, ", ms"), true});
    t.columns.push_back({"share", true});
  }
  if (change) t.columns.push_back({"change, ms", true});
  for (const ClassRow& r : rows) {
    std::vector<TableCell> row = {r.name};
    row[0].fill = r.fill;
    for (size_t e = 0; e < r.us.size(); ++e) {
      const double all = input.entries[e].profile.kernel_us();
      row.emplace_back(decimals(r.us[e] / 1e3, 3), r.us[e]);
      row.emplace_back(share_words(all > 0 ? r.us[e] / all : 0), r.us[e]);
    }
    if (change) {
      const double by = (r.us[1] - r.us[0]) / 1e3;
      row.emplace_back(signed_words(by, 3), by);
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

// With many entries a row each: two columns for each would be a table that nobody reads.
TableBlock entry_table(const ReportInput& input, const std::vector<ClassRow>& rows) {
  TableBlock t{.caption = "Kernel time by class, milliseconds of one run.", .columns = {{"", false}}, .rows = {}};
  for (const ClassRow& r : rows) t.columns.push_back({r.name, true});
  t.columns.push_back({"all", true});
  for (size_t e = 0; e < input.entries.size(); ++e) {
    std::vector<TableCell> row = {input.entries[e].name};
    for (const ClassRow& r : rows) row.emplace_back(decimals(r.us[e] / 1e3, 3), r.us[e]);
    const double all = input.entries[e].profile.kernel_us();
    row.emplace_back(decimals(all / 1e3, 3), all);
    t.rows.push_back(std::move(row));
  }
  return t;
}

// The graphs of entries that are schedules.
TableBlock graph_table(const ReportInput& input) {
  TableBlock t{.caption = "Graphs of a schedule, each timed by itself, and what its runs make in all, milliseconds.",
               .columns = {{"", false}, {"graph", false}, {"plan", false}},
               .rows = {}};
  for (const char* title : {"times", "latency", "kernels", "kernels in all", "share"})
    t.columns.push_back({title, true});
  for (const ReportEntry& e : input.entries) {
    const double whole = e.profile.kernel_us();
    for (const GraphTime& g : e.profile.graphs) {
      const double all = static_cast<double>(g.times) * g.kernel_us;
      t.rows.push_back({e.name, g.graph, g.plan, TableCell(std::to_string(g.times), static_cast<double>(g.times)),
                        g.ms ? TableCell(decimals(*g.ms, 3), *g.ms) : TableCell("-"),
                        TableCell(decimals(g.kernel_us / 1e3, 3), g.kernel_us), TableCell(decimals(all / 1e3, 3), all),
                        TableCell(share_words(whole > 0 ? all / whole : 0), all)});
    }
  }
  return t;
}

// The share that no rule classifies is always said.
std::string unknown_words(const ReportInput& input) {
  std::string unknown;
  for (const ReportEntry& e : input.entries) {
    double us = 0;
    for (const KernelTime& k : e.profile.kernels) us += k.kernel_class == KernelClass::kUnknown ? k.us : 0;
    const double all = e.profile.kernel_us();
    if (us > 0 && all > 0) unknown += cat(unknown.empty() ? "" : ", ", e.name, " ", share_words(us / all));
  }
  if (unknown.empty()) return "The class of every kernel is known: 0.0 % of the time is unclassified.";
  return cat("Time of kernels whose name no rule knows: ", unknown, ".");
}

}  // namespace

Section time_section(const ReportInput& input) {
  Section s{.heading = "Where the time goes", .blocks = {}};
  const std::vector<ClassRow> rows = class_rows(input);
  if (rows.empty()) return s;
  if (TableBlock graphs = graph_table(input); !graphs.rows.empty()) s.blocks.push_back(std::move(graphs));
  s.blocks.push_back(class_chart(input, rows));
  s.blocks.push_back(input.entries.size() > kColumns ? entry_table(input, rows) : class_table(input, rows));
  s.blocks.push_back(TextBlock{unknown_words(input)});
  return s;
}

}  // namespace tessera
