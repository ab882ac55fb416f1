// SPDX-License-Identifier: Apache-2.0
#include "rewrite/keep_channels_last.h"

#include <algorithm>
#include <numeric>

#include "ops/builder.h"
#include "rewrite/drop_dead.h"
#include "rewrite/edit/match.h"
#include "rewrite/edit/replace.h"
#include "rewrite/share_equal.h"
#include "rewrite/simplify_views.h"

namespace tessera {
namespace {

using Order = std::vector<int64_t>;

// Axes in the order in which the elements lie, those of one element, or of one that repeats, where they stand; nothing
// where that is the order that they have.
std::optional<Order> lying_order(const Region& r) {
  std::vector<size_t> moving;
  for (size_t a = 0; a < r.shape.size(); ++a) {
    if (r.shape[a] > 1 && r.strides[a] != 0) moving.push_back(a);
  }
  std::vector<size_t> sorted = moving;
  std::stable_sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) { return r.strides[a] > r.strides[b]; });
  if (sorted == moving) return std::nullopt;
  Order order(r.shape.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = 0; i < moving.size(); ++i) order[moving[i]] = static_cast<int64_t>(sorted[i]);
  return order;
}

// The order in which the operand lies that has the most axes of more than one element, where it is viewed in another
// one; of several such operands the first that is. (An edge of an image does not tell where its one line belongs.)
std::optional<Order> order_of(const Graph& g, const Matcher& m, const Node& node) {
  const size_t rank = g.at(node.outputs[0]).type.shape.size();
  if (rank < 3) return std::nullopt;
  std::optional<Order> found;
  int64_t most = 0;
  for (const ValueId in : node.inputs) {
    if (in == kNoValue || g.at(in).type.shape.size() != rank) continue;
    const Place place = m.place(in);
    if (g.at(place.base).constant) continue;
    const Shape& shape = place.region.shape;
    const int64_t axes = std::count_if(shape.begin(), shape.end(), [](int64_t n) { return n > 1; });
    if (axes < most || (axes == most && found)) continue;
    found = lying_order(place.region);
    most = axes;
  }
  return found;
}

class Mover {
 public:
  Mover(Graph& graph, size_t at, Order order) : g_(graph), node_(graph.nodes[at]), order_(std::move(order)), at_(at) {}

  // Returns how many nodes were put before the old one, which nobody reads any more.
  Result<size_t> run() {
    GraphBuilder before(g_, at_);
    Node moved = node_;
    moved.outputs.clear();
    const size_t rank = order_.size();
    for (ValueId& in : moved.inputs) {
      TS_ASSIGN(in, in_order(before, in, rank));
    }
    if (moved.op == "concat") {
      const int64_t axis = moved.attrs.integer("axis"), own = axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
      moved.attrs.set("axis", std::find(order_.begin(), order_.end(), own) - order_.begin());
    }
    TS_ASSIGN(const ValueId made, before.emit(std::move(moved)));
    Order back(rank);
    for (size_t i = 0; i < rank; ++i) back[static_cast<size_t>(order_[i])] = static_cast<int64_t>(i);
    TS_ASSIGN(const ValueId shown, before.permute(made, back));
    TS_TRY(take_over(before, node_.outputs[0], shown));
    return before.position() - at_;
  }

 private:
  // Operands of fewer axes are aligned at the last one.
  Result<ValueId> in_order(GraphBuilder& b, ValueId in, size_t rank) const {
    if (in == kNoValue || elements(b.shape(in)) == 1) return in;
    Shape full(rank - b.rank(in), 1);
    full.insert(full.end(), b.shape(in).begin(), b.shape(in).end());
    TS_ASSIGN(const ValueId aligned, b.reshape(in, full));
    return b.permute(aligned, order_);
  }

  Graph& g_;
  const Node node_;
  const Order order_;
  const size_t at_;
};

}  // namespace

Status keep_channels_last(Graph& graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.op == "conv2d"; })) return {};
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != "map" && node.op != "concat") continue;
    auto order = order_of(graph, Matcher(graph), node);
    if (!order) continue;
    TS_ASSIGN(const size_t added, Mover(graph, i, std::move(*order)).run());
    i += added;
  }
  TS_TRY(simplify_views(graph));
  TS_TRY(share_equal(graph));  // every reader was given a view of its own; patterns look for one value
  return drop_dead(graph);
}

}  // namespace tessera
