// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "base/status.h"
#include "explain/rates.h"
#include "report/escape.h"
#include "report/figures.h"
#include "report/kernel_groups.h"
#include "report/sections.h"

namespace tessera {
namespace {

constexpr size_t kMapRows = 40, kMapColumns = 64;
constexpr size_t kMaps = 4;  // of more engines the table must do

std::optional<double> share_of(const ShareTable& t, const std::string& precision) { return t.of(precision); }

void add_coverage(const std::string& name, const Coverage& c, TableBlock& t, std::set<std::string>& notes) {
  std::vector<std::string> precisions;
  for (const ShareTable* table : {&c.time, &c.flops, &c.bytes}) {
    for (const PrecisionShare& p : table->shares) {
      if (std::find(precisions.begin(), precisions.end(), p.precision) == precisions.end())
        precisions.push_back(p.precision);
    }
    if (!table->why.empty()) notes.insert(cat(name, ": ", table->why));
  }
  for (const std::string& p : precisions) {
    std::vector<TableCell> row = {name, p};
    row[1].fill = fill_of_bits(stored_bits(p));
    for (const ShareTable* table : {&c.time, &c.flops, &c.bytes}) {
      const std::optional<double> share = share_of(*table, p);
      const bool estimated = table->origin == Origin::kEstimated;
      row.push_back(share ? TableCell(cat(share_words(*share), estimated ? " (estimated)" : ""), *share)
                          : TableCell("-"));
    }
    t.rows.push_back(std::move(row));
  }
}

// The layers of an entry: of its engine, else of the kernels of its profile.
std::vector<LayerPrecision> layers_of_entry(const ReportEntry& e) {
  if (!e.layers.empty()) return e.layers;
  std::vector<LayerPrecision> out;
  std::map<std::string, size_t> places;
  for (const KernelTime& k : e.profile.kernels) {
    const bool counts = is_product(k.kernel_class) || k.kernel_class == KernelClass::kAttention;
    if (!counts || k.layer.empty()) continue;
    if (!places.try_emplace(k.layer, out.size()).second) continue;
    out.push_back({k.layer, name_of(k.kernel_class), k.asked, "", k.precision});
  }
  return out;
}

std::string short_word(const std::string& precision) {
  const int bits = stored_bits(precision);
  if (bits == 0) return "?";
  const bool integer = precision.find("int") != std::string::npos, brain = precision.find("bf16") != std::string::npos;
  return cat(integer ? "i" : brain ? "b" : "", bits);
}

std::string shown_precision(const LayerPrecision& l) { return l.stored.empty() ? l.computed : l.stored; }

MapChart::CellOfMap cell_of(const LayerPrecision& l) {
  const std::string shown = shown_precision(l);
  std::string hint = l.layer;
  if (!l.asked.empty()) hint += cat(", asked ", l.asked);
  if (!l.stored.empty()) hint += cat(", stored ", l.stored);
  if (!l.computed.empty()) hint += cat(", computed ", l.computed);
  const bool higher = is_lower(l.asked, l.computed);
  return {fill_of_bits(stored_bits(shown)), short_word(shown), hint, higher};
}

// A row per kind of layer, a column per block; layers outside the blocks have a row each and the first column.
struct Map {
  MapChart chart;
  bool cut = false;
};
Map map_of(const std::vector<LayerPrecision>& layers) {
  Map m;
  std::vector<std::string> in_order;
  for (const LayerPrecision& l : layers) in_order.push_back(l.layer);
  const LayerNames names(in_order);
  std::vector<std::string> blocks, kinds;
  std::map<std::string, size_t> block_places, kind_places;
  std::set<int> fills;
  for (const LayerPrecision& l : layers) {
    const LayerName& name = names.of(l.layer);
    if (!name.block.empty() && !block_places.contains(name.block) && blocks.size() < kMapColumns)
      block_places.try_emplace(name.block, blocks.size()), blocks.push_back(name.block);
    if (!kind_places.contains(name.kind) && kinds.size() < kMapRows) {
      kind_places.try_emplace(name.kind, kinds.size()), kinds.push_back(name.kind);
      m.chart.rows.push_back({name.short_kind, {}});
    }
  }
  if (blocks.empty()) blocks.push_back("");
  m.chart.columns = blocks;
  for (MapChart::Row& r : m.chart.rows) r.cells.resize(blocks.size());
  for (const LayerPrecision& l : layers) {
    const LayerName& name = names.of(l.layer);
    const auto row = kind_places.find(name.kind);
    const auto column = block_places.find(name.block);
    if (row == kind_places.end() || (!name.block.empty() && column == block_places.end())) {
      m.cut = true;
      continue;
    }
    MapChart::CellOfMap& cell = m.chart.rows[row->second].cells[name.block.empty() ? 0 : column->second];
    if (cell.fill >= 0) continue;
    cell = cell_of(l);
    fills.insert(cell.fill);
  }
  const std::pair<int, const char*> words[] = {{fill::k4Bits, "4 bits"},
                                               {fill::k8Bits, "8 bits"},
                                               {fill::k16Bits, "16 bits"},
                                               {fill::k32Bits, "32 bits"},
                                               {fill::kUnknown, "not told"}};
  for (const auto& [f, word] : words) {
    if (fills.contains(f)) m.chart.legend.emplace_back(f, word);
  }
  return m;
}

// Layers that ask for, store and compute the same, in one row.
TableBlock promise_table(const ReportInput& input) {
  TableBlock t{.caption = "Precision asked for, type stored and arithmetic computed, by number of layers.",
               .columns = {{"", false}, {"asked", false}, {"stored", false}, {"computed", false}, {"layers", true}},
               .rows = {}};
  for (const ReportEntry& e : input.entries) {
    std::vector<std::pair<const LayerPrecision*, int64_t>> groups;
    for (const LayerPrecision& l : e.layers) {
      if (l.asked.empty()) continue;
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& g) {
        return g.first->asked == l.asked && g.first->stored == l.stored && g.first->computed == l.computed;
      });
      if (same == groups.end())
        groups.emplace_back(&l, 1);
      else
        ++same->second;
    }
    for (const auto& [l, count] : groups)
      t.rows.push_back({e.name, l->asked, l->stored.empty() ? "-" : l->stored, l->computed.empty() ? "-" : l->computed,
                        TableCell(std::to_string(count), static_cast<double>(count))});
  }
  return t;
}

void add_maps(const ReportInput& input, Section& s) {
  if (input.entries.size() > kMaps) return;
  for (const ReportEntry& e : input.entries) {
    const std::vector<LayerPrecision> layers = layers_of_entry(e);
    if (layers.empty()) continue;
    Map map = map_of(layers);
    const bool marked = std::any_of(map.chart.rows.begin(), map.chart.rows.end(), [](const MapChart::Row& r) {
      return std::any_of(r.cells.begin(), r.cells.end(), [](const auto& c) { return c.marked; });
    });
    s.blocks.push_back(ChartBlock{
        cat("Precision of each layer of ", e.name, ": rows are kinds of layers, columns are blocks, numbers are bits ",
            e.layers.empty() ? "of the operands." : "stored.",

            map.cut ? cat(" Only the first ", kMapRows, " kinds and ", kMapColumns, " blocks are drawn.") : ""),
        std::move(map.chart), marked ? "Thick frames: computed with more bits than asked for." : ""});
  }
}

}  // namespace

Section precision_section(const ReportInput& input) {
  Section s{.heading = "Precision", .blocks = {}};
  TableBlock coverage{
      .caption =
          "Share of the products (GEMMs and convolutions) that has each precision, by time, by "
          "operations and by bytes. The three differ: none stands for another.",
      .columns = {{"", false}, {"precision", false}, {"of time", true}, {"of flops", true}, {"of bytes", true}},
      .rows = {}};
  std::set<std::string> notes;
  for (size_t i = 0; i < input.explained.size(); ++i) {
    const Explanation& e = input.explained[i];
    if (i == 0) add_coverage(e.a.name, e.a_coverage, coverage, notes);
    if (e.compared) add_coverage(e.b.name, e.b_coverage, coverage, notes);
  }
  if (!coverage.rows.empty()) s.blocks.push_back(std::move(coverage));
  if (!notes.empty()) s.blocks.push_back(ListBlock{.items = {notes.begin(), notes.end()}});
  if (TableBlock promise = promise_table(input); !promise.rows.empty()) s.blocks.push_back(std::move(promise));
  add_maps(input, s);
  return s;
}

}  // namespace tessera
