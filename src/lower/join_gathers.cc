// SPDX-License-Identifier: Apache-2.0
#include "lower/join_gathers.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "ir/derived_constants.h"
#include "plan/plan.h"
#include "rewrite/drop_dead.h"

namespace tessera {
namespace {

// Columns of one table, and where they go.
struct Columns {
  size_t gather;
  int64_t first, count, to = 0;
};

class Tables {
 public:
  explicit Tables(Graph& graph) : g_(graph) {}

  // Gathers that may be one, in order.
  std::vector<std::vector<size_t>> groups() const {
    std::map<std::string, size_t> known;
    std::vector<std::vector<size_t>> groups;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (!picks_a_row(node)) continue;
      const Type& table = g_.at(node.inputs[0]).type;
      const auto [at, fresh] =
          known.emplace(cat(node.inputs[1], " ", table.shape[0], " ", to_string(table.quant)), groups.size());
      if (fresh) groups.emplace_back();
      groups[at->second].push_back(n);
    }
    return groups;
  }

  // False where it stays as it is: one whole table.
  bool join(const std::vector<size_t>& group) {
    std::vector<Columns> parts = parts_of(group);
    const bool whole = parts.size() == 1 && parts[0].count == cols(group[0]);
    if (parts.empty() || (group.size() == 1 && (whole || g_.nodes[group[0]].attrs.has(kTables)))) return false;
    const int64_t unit = 128 / info(g_.at(g_.nodes[group[0]].inputs[0]).type.quant.element).bits;
    int64_t width = 0;
    for (Columns& c : parts) {
      c.to = (width + unit - 1) / unit * unit;
      width = c.to + c.count;
    }
    rewrite(group, parts, (width + unit - 1) / unit * unit);
    return true;
  }

 private:
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }
  int64_t cols(size_t gather) const { return shape(g_.nodes[gather].inputs[0])[1]; }

  bool picks_a_row(const Node& n) const {
    if (n.op != "gather" || !n.then.empty() || n.attrs.all().size() > n.attrs.has(kTables)) return false;
    const Value &table = g_.at(n.inputs[0]), &y = g_.at(n.outputs[0]);
    return table.constant && table.type.shape.size() == 2 && !table.type.quant.scaled() &&
           info(table.type.quant.element).bits >= 8 && y.type.quant == table.type.quant &&
           elements(shape(n.inputs[1])) == 1 &&
           std::find(g_.outputs.begin(), g_.outputs.end(), n.outputs[0]) == g_.outputs.end();
  }

  // Ranges of columns that views show, or all where something else reads the row.
  std::vector<std::pair<int64_t, int64_t>> ranges_read(ValueId y, int64_t all) const {
    std::vector<std::pair<int64_t, int64_t>> read;
    for (const Node& n : g_.nodes) {
      if (std::find(n.inputs.begin(), n.inputs.end(), y) == n.inputs.end()) continue;
      if (n.op != "view") return {{0, all}};
      int64_t last = n.attrs.integer("offset");
      const std::vector<int64_t> strides = n.attrs.list("strides");
      const Shape& seen = shape(n.outputs[0]);
      for (size_t axis = 0; axis < seen.size(); ++axis) last += (seen[axis] - 1) * strides[axis];
      if (elements(seen) > 0) read.emplace_back(n.attrs.integer("offset"), last + 1);
    }
    std::sort(read.begin(), read.end());
    std::vector<std::pair<int64_t, int64_t>> merged;
    for (const auto& [begin, end] : read) {
      if (merged.empty() || begin > merged.back().second) {
        merged.emplace_back(begin, end);
      } else {
        merged.back().second = std::max(merged.back().second, end);
      }
    }
    return merged;
  }

  std::vector<Columns> parts_of(const std::vector<size_t>& group) const {
    std::vector<Columns> parts;
    for (const size_t n : group) {
      for (const auto& [begin, end] : ranges_read(g_.nodes[n].outputs[0], cols(n)))
        parts.push_back({n, begin, end - begin});
    }
    return parts;
  }

  Bytes joined_table(const std::vector<size_t>& group, const std::vector<Columns>& parts, int64_t width) const {
    const Type& type = g_.at(g_.nodes[group[0]].inputs[0]).type;
    const auto bytes = static_cast<size_t>(info(type.quant.element).bits / 8),
               rows = static_cast<size_t>(type.shape[0]);
    std::string recipe = cat("columns of tables ", rows, " ", bytes, " ", width);
    std::vector<Bytes> from;
    for (const Columns& c : parts) {
      from.push_back(g_.at(g_.nodes[c.gather].inputs[0]).data);
      recipe += cat(" ", c.first, "+", c.count, ">", c.to);
    }
    const auto make = [&]() -> Result<std::vector<Buffer>> {
      std::vector<Buffer> made;
      made.emplace_back(rows * static_cast<size_t>(width) * bytes);
      std::memset(made[0].data(), 0, made[0].size());
      for (size_t i = 0; i < parts.size(); ++i) {
        const Columns& c = parts[i];
        const size_t row = static_cast<size_t>(cols(c.gather)) * bytes;
        for (size_t r = 0; r < rows; ++r)
          std::memcpy(made[0].data() + (r * static_cast<size_t>(width) + static_cast<size_t>(c.to)) * bytes,
                      from[i].data() + r * row + static_cast<size_t>(c.first) * bytes,
                      static_cast<size_t>(c.count) * bytes);
      }
      return made;
    };
    return derive(g_, recipe, from, make).value()[0];
  }

  void rewrite(const std::vector<size_t>& group, const std::vector<Columns>& parts, int64_t width) {
    const Node first = g_.nodes[group[0]];
    const Type type{{shape(first.inputs[0])[0], width}, g_.at(first.inputs[0]).type.quant};
    Value row = g_.at(first.outputs[0]);
    row.type.shape.back() = width;
    Node made = first;
    made.inputs[0] = g_.add_constant(g_.at(first.inputs[0]).name, type, joined_table(group, parts, width));
    made.outputs = {g_.add_value(std::move(row))};
    int64_t tables = 0;
    for (const size_t n : group) tables += g_.nodes[n].attrs.integer(kTables, 1);
    made.attrs.set(kTables, tables);
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      Node node = g_.nodes[n];
      if (n == group[0]) nodes.push_back(made);
      if (std::find(group.begin(), group.end(), n) != group.end()) {
        if (!reads_whole(parts, n)) continue;
        const Attrs whole{{"strides", dense_strides(shape(node.outputs[0]))}, {"offset", place_of(parts, n, 0)}};
        node = {.name = {}, .op = "view", .inputs = made.outputs, .outputs = node.outputs, .attrs = whole};
      } else if (node.op == "view") {
        if (const size_t from = maker_in(group, node.inputs[0]); from < g_.nodes.size()) {
          node.inputs = made.outputs;
          node.attrs.set("offset", place_of(parts, from, node.attrs.integer("offset")));
        }
      }
      nodes.push_back(std::move(node));
    }
    g_.nodes = std::move(nodes);
  }

  size_t maker_in(const std::vector<size_t>& group, ValueId y) const {
    for (const size_t n : group) {
      if (g_.nodes[n].outputs[0] == y) return n;
    }
    return g_.nodes.size();
  }
  bool reads_whole(const std::vector<Columns>& parts, size_t gather) const {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Columns& c) { return c.gather == gather && c.first == 0 && c.count == cols(gather); });
  }
  // Where a column of a table has gone.
  static int64_t place_of(const std::vector<Columns>& parts, size_t gather, int64_t column) {
    for (const Columns& c : parts) {
      if (c.gather == gather && c.first <= column && column < c.first + c.count) return c.to + column - c.first;
    }
    return 0;
  }

  Graph& g_;
};

}  // namespace

Status join_gathers(Graph& graph) {
  for (size_t group = 0;;) {  // one at a time: the places of nodes change
    Tables tables(graph);
    const auto groups = tables.groups();
    if (group >= groups.size()) break;
    if (!tables.join(groups[group])) ++group;
  }
  return drop_dead(graph);
}

}  // namespace tessera
