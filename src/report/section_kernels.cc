// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "base/status.h"
#include "report/escape.h"
#include "report/figures.h"
#include "report/kernel_groups.h"
#include "report/sections.h"
#include "traces/roofline.h"

namespace tessera {
namespace {

// Rows of a table: more make no reader wiser, and a file of another tool may hold a million kernels.
constexpr size_t kGroupRows = 60, kLayerRows = 250, kNameLength = 110, kPoints = 80;
constexpr size_t kOpenTables = 2;  // with more entries, the reader opens those that interest

std::string left_out(size_t count, double us, double all) {
  return cat(count, count == 1 ? " further row" : " further rows", " with ", share_words(all > 0 ? us / all : 0),
             " of the time left out.");
}

// The columns of what a kernel reaches, where the profile says enough.
void add_achieved(const KernelTime& k, const std::optional<Ceilings>& ceilings, std::vector<TableCell>& row) {
  const Achieved a = achieved(k, ceilings.value_or(Ceilings{}));
  const double intensity = k.flops && k.bytes && *k.bytes > 0 ? *k.flops / *k.bytes : 0;
  row.push_back(intensity > 0 ? TableCell(rounded(intensity), intensity) : TableCell("-"));
  row.push_back(a.flops_per_s ? TableCell(count_words(*a.flops_per_s, "FLOP/s"), a.flops_per_s) : TableCell("-"));
  row.push_back(a.bytes_per_s ? TableCell(count_words(*a.bytes_per_s, "B/s"), a.bytes_per_s) : TableCell("-"));
  if (!ceilings) return;
  std::string bound = "-";
  if (a.bound) bound = cat(name_of(*a.bound), ", ", share_words(a.share_of_bound()));
  row.emplace_back(bound);
}

TableBlock kernel_table(const ReportEntry& e, const std::vector<KernelGroup>& groups) {
  const bool layers = std::any_of(groups.begin(), groups.end(), [](const KernelGroup& g) {
    return !g.kernel.layer.empty() && g.kernel.layer != g.kernel.name;
  });
  const bool work =
      std::any_of(groups.begin(), groups.end(), [](const KernelGroup& g) { return g.kernel.flops || g.kernel.bytes; });
  TableBlock t{.caption = cat("Kernels of ", e.name, layers ? ", the same work of each block in one row." : "."),
               .columns = {{"kernel", false}},
               .rows = {}};
  if (layers) t.columns.push_back({"layer", false});
  for (const char* title : {"class", "precision"}) t.columns.push_back({title, false});
  for (const char* title : {"calls", "us", "share"}) t.columns.push_back({title, true});
  if (work) {
    for (const char* title : {"flop/byte", "rate", "bandwidth"}) t.columns.push_back({title, true});
    if (e.profile.ceilings) t.columns.push_back({"bound by", false});
  }
  const double all = e.profile.kernel_us();
  double rest = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const KernelTime& k = groups[i].kernel;
    if (i >= kGroupRows) {
      rest += k.us;
      continue;
    }
    std::vector<TableCell> row = {TableCell::code(cut_middle(k.name, kNameLength))};
    row[0].fill = fill_of(k);
    if (layers) row.push_back(TableCell::code(cut_middle(k.layer, kNameLength)));
    row.emplace_back(name_of(k.kernel_class));
    row.emplace_back(k.precision.empty() ? "-" : k.precision);
    row.emplace_back(std::to_string(k.calls), static_cast<double>(k.calls));
    row.emplace_back(decimals(k.us, 1), k.us);
    row.emplace_back(share_words(all > 0 ? k.us / all : 0), k.us);
    if (work) add_achieved(k, e.profile.ceilings, row);
    t.rows.push_back(std::move(row));
  }
  if (groups.size() > kGroupRows) t.caption += " " + left_out(groups.size() - kGroupRows, rest, all);
  return t;
}

TableBlock layer_table(const ReportEntry& e) {
  TableBlock t{.caption = cat("Every layer of ", e.name, ", in the order in which they run."),
               .columns = {{"layer", false},
                           {"kernel", false},
                           {"asked", false},
                           {"precision", false},
                           {"arithmetic", false},
                           {"us", true},
                           {"share", true}},
               .rows = {},
               .folded = true};
  const double all = e.profile.kernel_us();
  size_t count = 0;
  double rest = 0;
  for (const KernelTime& k : e.profile.kernels) {
    if (k.layer.empty() || k.layer == k.name) continue;
    if (++count > kLayerRows) {
      rest += k.us;
      continue;
    }
    const auto or_none = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
    t.rows.push_back({TableCell::code(cut_middle(k.layer, kNameLength)),
                      TableCell::code(cut_middle(k.name, kNameLength)), or_none(k.asked), or_none(k.precision),
                      or_none(cut_middle(k.arithmetic, kNameLength)), TableCell(decimals(k.us, 2), k.us),
                      TableCell(share_words(all > 0 ? k.us / all : 0), k.us)});
  }
  if (count > kLayerRows) t.caption += " " + left_out(count - kLayerRows, rest, all);
  return t;
}

// A memory slope and the roofs of the precisions that the points have.
void add_roofs(const Ceilings& c, const std::set<std::string>& precisions, ScatterChart& chart) {
  double least = 1e300, most = 0;
  for (const ScatterChart::Point& p : chart.points) least = std::min(least, p.x), most = std::max(most, p.x);
  std::vector<std::pair<std::string, double>> roofs;
  for (const auto& roof : c.flops_per_s) {
    if (precisions.contains(roof.first) && roof.second > 0) roofs.push_back(roof);
  }
  for (const auto& [name, rate] : roofs) most = std::max(most, 2 * rate / c.bytes_per_s);
  least /= 2, most *= 1.5;
  for (const auto& [name, rate] : roofs) {
    const double ridge = rate / c.bytes_per_s;
    std::vector<std::pair<double, double>> line;
    if (least < ridge) line.emplace_back(least, least * c.bytes_per_s);
    line.emplace_back(std::max(ridge, least), rate);
    line.emplace_back(most, rate);
    chart.lines.push_back({std::move(line), cat(name, ": ", count_words(rate, "FLOP/s"))});
  }
  if (roofs.empty()) chart.lines.push_back({{{least, least * c.bytes_per_s}, {most, most * c.bytes_per_s}}, ""});
}

void add_points(const ReportEntry& e, int shape, ScatterChart& chart, std::set<std::string>& precisions) {
  const double all = e.profile.kernel_us();
  size_t count = 0;
  for (const KernelGroup& g : group_kernels(e.profile)) {
    const KernelTime& k = g.kernel;
    if (!k.flops || !k.bytes || *k.flops <= 0 || *k.bytes <= 0 || k.us <= 0 || ++count > kPoints) continue;
    if (!k.precision.empty()) precisions.insert(rate_name(k));
    const std::string what = k.layer.empty() ? cut_middle(k.name, 24) : cut_middle(g.short_kind, 24);
    chart.points.push_back({*k.flops / *k.bytes, *k.flops / k.us * 1e6, all > 0 ? k.us / all : 0, shape, what,
                            cat(e.name, ": ", what, ", ", k.name, ", ", share_words(k.us / all), " of the time")});
  }
}

// One chart per machine: roofs of two in one chart would say nothing.
std::vector<ChartBlock> rooflines(const ReportInput& input) {
  std::vector<ChartBlock> charts;
  std::set<std::string> done;
  for (const ReportEntry& first : input.entries) {
    if (!first.profile.ceilings || first.profile.ceilings->bytes_per_s <= 0) continue;
    const Ceilings& c = *first.profile.ceilings;
    if (!done.insert(c.machine).second) continue;
    ScatterChart chart{.x = {"flop per byte of memory traffic", true}, .y = {"FLOP/s", true}};
    std::set<std::string> precisions;
    for (const ReportEntry& e : input.entries) {
      if (!e.profile.ceilings || e.profile.ceilings->machine != c.machine) continue;
      const size_t before = chart.points.size();
      add_points(e, static_cast<int>(chart.series.size()), chart, precisions);
      if (chart.points.size() > before) chart.series.push_back(e.name);
    }
    if (chart.points.empty()) continue;
    double largest = 0;
    for (const ScatterChart::Point& p : chart.points) largest = std::max(largest, p.weight);
    for (ScatterChart::Point& p : chart.points) p.weight /= largest > 0 ? largest : 1;
    std::stable_sort(chart.points.begin(), chart.points.end(),
                     [](const auto& a, const auto& b) { return a.weight > b.weight; });
    add_roofs(c, precisions, chart);
    charts.push_back({cat("Roofline of ", c.machine.empty() ? "the machine" : c.machine,
                          ". Each point is a kernel of one "
                          "kind of layer; the slope is memory at ",
                          count_words(c.bytes_per_s, "B/s"), ", the level lines are the rates of products, ",
                          c.measured ? "both measured." : "both of the data sheet."),
                      std::move(chart), "The area of a point is its share of the time."});
  }
  return charts;
}

}  // namespace

Section kernels_section(const ReportInput& input) {
  Section s{.heading = "Kernels", .blocks = {}};
  for (ChartBlock& chart : rooflines(input)) s.blocks.push_back(std::move(chart));
  for (const ReportEntry& e : input.entries) {
    if (e.profile.kernels.empty()) continue;
    TableBlock t = kernel_table(e, group_kernels(e.profile));
    t.folded = input.entries.size() > kOpenTables;
    s.blocks.push_back(std::move(t));
  }
  for (const ReportEntry& e : input.entries) {
    TableBlock t = layer_table(e);
    if (!t.rows.empty()) s.blocks.push_back(std::move(t));
  }
  return s;
}

}  // namespace tessera
