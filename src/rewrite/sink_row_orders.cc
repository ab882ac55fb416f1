// SPDX-License-Identifier: Apache-2.0
#include "rewrite/sink_row_orders.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ops/builder.h"
#include "rewrite/edit/match.h"

namespace tessera {
namespace {

// The rows of a linear layer's input where they really lie: the operand itself, or what a copy made for it reads.
struct Rows {
  ValueId base;
  Region region;  // [..., k]
};

// Axes so fine that both a and b are groupings of neighbours of them: [12,32] and [6,8,8] -> [6,2,4,8]. Nothing where
// there are none.
std::optional<Shape> common_axes(const Shape& a, const Shape& b) {
  std::set<int64_t> ends;  // elements from an axis on
  for (const Shape* s : {&a, &b}) {
    int64_t n = 1;
    for (size_t i = s->size(); i-- > 0;) ends.insert(n *= (*s)[i]);
  }
  Shape out;
  int64_t before = 1;
  for (const int64_t end : ends) {
    if (before == 0 || end % before != 0) return std::nullopt;
    if (end != before) out.insert(out.begin(), end / before);
    before = end;
  }
  return out;
}

std::optional<Rows> rows_behind(const Graph& graph, const Matcher& m, ValueId x) {
  const int64_t k = graph.at(x).type.shape.back();
  Place p = m.place(x);
  while (const Node* copy = m.made_by(p.base, "copy")) {
    const Type &from = graph.at(copy->inputs[0]).type, &to = graph.at(p.base).type;
    if (from.quant != to.quant || from.quant.scaled()) break;
    const Place source = m.place(copy->inputs[0]);
    auto straight = composed(source.region, p.region);
    if (!straight && p.region.whole() && elements(p.region.shape) == elements(to.shape)) {
      const auto axes = common_axes(p.region.shape, source.region.shape);
      if (axes) straight = composed(source.region, dense_region(*axes));
    }
    if (!straight) break;
    p = {source.base, *straight};
  }
  Shape lead = p.region.shape;
  int64_t cols = 1;
  while (cols < k && !lead.empty()) {
    cols *= lead.back();
    lead.pop_back();
  }
  if (cols != k) return std::nullopt;
  lead.push_back(k);
  const auto region = reshaped(p.region, lead);
  if (!region) return std::nullopt;
  return Rows{p.base, *region};
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

// Lets a linear layer read its rows in the order in which they lie, where its readers are views that can put the rows
// of the result back in order; else nothing.
Status read_rows_as_they_lie(Graph& graph, size_t at) {
  const Matcher m(graph);
  const Node node = graph.nodes[at];
  const ValueId y = node.outputs[0];
  const auto reads_rows = [](const Step& s) {
    return operand_of(s.kind) == StepOperand::kMatrix || operand_of(s.kind) == StepOperand::kMoments;
  };
  if (std::any_of(node.then.steps.begin(), node.then.steps.end(), reads_rows) ||
      graph.at(node.inputs[1]).type.shape.size() != 2)
    return {};
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
  TS_ASSIGN(const ValueId in_lying_order, builder.emit(std::move(fresh)));
  const size_t shift = builder.position() - at;
  for (const size_t r : readers) {
    Node& view = graph.nodes[r + shift];
    const Region region = *composed(result, view_of(graph, view));
    view.inputs[0] = in_lying_order;
    view.attrs.set("strides", region.strides);
    view.attrs.set("offset", region.offset);
  }
  return {};
}

}  // namespace

Status sink_row_orders(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "matmul") continue;
    const size_t before = graph.nodes.size();
    TS_TRY(read_rows_as_they_lie(graph, i));
    i += graph.nodes.size() - before;  // stands at the old node again, which has no reader now
  }
  return {};
}

}  // namespace tessera
