// SPDX-License-Identifier: Apache-2.0
#include "passes/straighten_rows.h"

#include <algorithm>
#include <numeric>

#include "ops/builder.h"
#include "passes/recognise/match.h"

namespace tessera {
namespace {

// The rows of a linear layer's input where they really lie: the operand itself, or what a copy made for it reads.
struct Rows {
  ValueId base;
  Region region;  // [..., k]
};

std::optional<Rows> rows_behind(const Graph& graph, const Matcher& m, ValueId x) {
  const int64_t k = graph.at(x).type.shape.back();
  const Placement p = placement_of(graph, m.producers(), x);
  const Node* copy = m.made_by(p.base, "copy");
  if (copy == nullptr) return Rows{p.base, {graph.at(x).type.shape, p.strides, p.offset}};
  const Type &from = graph.at(copy->inputs[0]).type, &to = graph.at(p.base).type;
  const bool whole = p.offset == 0 && is_dense(graph.at(x).type.shape, p.strides) &&
                     elements(graph.at(x).type.shape) == elements(to.shape);
  if (!whole || from.quant != to.quant || from.quant.scaled()) return std::nullopt;
  const Placement source = placement_of(graph, m.producers(), copy->inputs[0]);
  Shape lead = from.shape;
  int64_t cols = 1;
  while (cols < k && !lead.empty()) {
    cols *= lead.back();
    lead.pop_back();
  }
  if (cols != k) return std::nullopt;
  lead.push_back(k);
  const auto region = reshaped({from.shape, source.strides, source.offset}, lead);
  if (!region) return std::nullopt;
  return Rows{source.base, *region};
}

// Axes before the last, those with the longest stride first.
std::vector<int64_t> lying_order(const Region& r) {
  std::vector<int64_t> order(r.shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end() - 1, [&](int64_t a, int64_t b) {
    return r.strides[static_cast<size_t>(a)] > r.strides[static_cast<size_t>(b)];
  });
  return order;
}

Region view_of(const Graph& graph, const Node& view) {
  return {graph.at(view.outputs[0]).type.shape, view.attrs.list("strides"), view.attrs.integer("offset")};
}

Status straighten(Graph& graph, size_t at) {
  const Matcher m(graph);
  const Node node = graph.nodes[at];
  const ValueId y = node.outputs[0];
  if (node.then.find(StepKind::residual) != nullptr || graph.at(node.inputs[1]).type.shape.size() != 2) return {};
  if (std::find(graph.outputs.begin(), graph.outputs.end(), y) != graph.outputs.end()) return {};
  const auto rows = rows_behind(graph, m, node.inputs[0]);
  if (!rows || as_rows(rows->region.shape, rows->region.strides).uniform) return {};
  const std::vector<int64_t> order = lying_order(rows->region);
  const Region sorted = permuted(rows->region, order);
  const RowView straight = as_rows(sorted.shape, sorted.strides);
  if (!straight.uniform || straight.row_stride < straight.cols) return {};
  // The result in the order that readers know: axes sorted back.
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  Shape made = sorted.shape;
  made.back() = graph.at(y).type.shape.back();
  const Region result = permuted(dense_region(made), back);
  const std::vector<size_t> readers = m.readers(y);
  for (const size_t r : readers) {
    if (graph.nodes[r].op != "view" || !composed(result, view_of(graph, graph.nodes[r]))) return {};
  }
  GraphBuilder builder(graph, at);
  Node fresh = node;
  fresh.outputs.clear();
  TS_ASSIGN(fresh.inputs[0], builder.view(rows->base, sorted));
  TS_ASSIGN(const ValueId straightened, builder.emit(std::move(fresh)));
  const size_t shift = builder.position() - at;
  for (const size_t r : readers) {
    Node& view = graph.nodes[r + shift];
    const Region region = *composed(result, view_of(graph, view));
    view.inputs[0] = straightened;
    view.attrs.set("strides", region.strides);
    view.attrs.set("offset", region.offset);
  }
  return {};
}

}  // namespace

Status straighten_rows(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "matmul") continue;
    const size_t before = graph.nodes.size();
    TS_TRY(straighten(graph, i));
    i += graph.nodes.size() - before;  // stands at the old node again, which nobody reads now
  }
  return {};
}

}  // namespace tessera
