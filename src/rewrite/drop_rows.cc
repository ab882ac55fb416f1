// SPDX-License-Identifier: Apache-2.0
#include "rewrite/drop_rows.h"

#include <algorithm>
#include <set>

#include "ops/builder.h"
#include "rewrite/drop_dead.h"

namespace tessera {
namespace {

// Indices [begin, end) of one axis.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

// One axis of a dense tensor: elements that one step along it skips, and those that all of it spans.
struct Axis {
  Axis(const Shape& shape, size_t axis) : step(dense_strides(shape)[axis]), span(step * shape[axis]) {}
  int64_t step, span;
};

Region view_of(const Graph& graph, const Node& view) {
  return {graph.at(view.outputs[0]).type.shape, view.attrs.list("strides"), view.attrs.integer("offset")};
}

// The indices of the axis that a view of the tensor takes; nothing where it mixes the axis with its neighbours.
std::optional<Range> range_of(const Region& view, const Axis& axis) {
  if (elements(view.shape) == 0) return std::nullopt;
  const int64_t begin = view.offset % axis.span / axis.step;
  int64_t within = view.offset % axis.step, last = begin;  // furthest places inside one index, and along the axis
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const int64_t stride = view.strides[i], steps = view.shape[i] - 1;
    if (steps == 0 || stride % axis.span == 0) continue;
    if (stride < 0) return std::nullopt;
    if (stride % axis.step == 0) {
      last += stride / axis.step * steps;
    } else if (stride < axis.step) {
      within += stride * steps;
    } else {
      return std::nullopt;
    }
  }
  if (within >= axis.step || last >= axis.span / axis.step) return std::nullopt;
  return Range{begin, last + 1};
}

// The same elements where the tensor holds nothing but `range` of the axis.
Region within(Region view, const Axis& axis, Range range) {
  const int64_t span = axis.step * range.count();
  view.offset = view.offset / axis.span * span + view.offset % axis.span - range.begin * axis.step;
  for (int64_t& stride : view.strides) {
    if (stride % axis.span == 0) stride = stride / axis.span * span;
  }
  return view;
}

bool is_matrix(const Region& r) {
  const RowView rows = as_rows(r.shape, r.strides);
  return rows.uniform && (rows.rows == 1 || rows.row_stride >= rows.cols);
}

class RowDropper {
 public:
  explicit RowDropper(Graph& graph) : g_(graph) {}

  // Cuts one value; false where none is left to cut.
  Result<bool> cut_one() {
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      if (g_.nodes[n].op == "view" || g_.nodes[n].outputs.size() != 1) continue;
      const std::vector<size_t> views = only_views(g_.nodes[n].outputs[0]);
      if (views.empty()) continue;
      const size_t rank = g_.at(g_.nodes[n].outputs[0]).type.shape.size();
      for (size_t axis = 0; axis + 1 < rank; ++axis) {
        TS_ASSIGN(const bool done, cut(n, axis, views));
        if (done) return true;
      }
    }
    return false;
  }

 private:
  // The views through which all of a value's readers read it; none where somebody reads it as a whole.
  std::vector<size_t> only_views(ValueId v) const {
    if (std::find(g_.outputs.begin(), g_.outputs.end(), v) != g_.outputs.end()) return {};
    std::vector<size_t> views;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const std::vector<ValueId>& in = g_.nodes[n].inputs;
      if (std::find(in.begin(), in.end(), v) == in.end()) continue;
      if (g_.nodes[n].op != "view") return {};
      views.push_back(n);
    }
    return views;
  }

  Result<bool> cut(size_t at, size_t axis, const std::vector<size_t>& views) {
    const ValueId y = g_.nodes[at].outputs[0];
    const Type made = g_.at(y).type;
    const Axis along(made.shape, axis);
    if (along.span == 0 || made.quant.scaled()) return false;
    Range range{made.shape[axis], 0};
    for (const size_t v : views) {
      const auto one = range_of(view_of(g_, g_.nodes[v]), along);
      if (!one) return false;
      range = {std::min(range.begin, one->begin), std::max(range.end, one->end)};
    }
    if (2 * range.count() > made.shape[axis]) return false;
    GraphBuilder builder(g_, at);
    const auto operands = operands_of(builder, g_.nodes[at], axis, range);
    if (!operands) return false;
    Node fresh = g_.nodes[at];
    fresh.outputs.clear();
    for (const Sliced& s : *operands) {
      TS_ASSIGN(fresh.inputs[s.input], builder.view(s.base, s.region));
    }
    TS_ASSIGN(const ValueId few, builder.emit(std::move(fresh)));
    g_.at(few).type.quant = made.quant;
    g_.at(few).name = g_.at(y).name;
    const size_t shift = builder.position() - at;
    for (const size_t v : views) {
      Node& view = g_.nodes[v + shift];
      const Region region = within(view_of(g_, view), along, range);
      view.inputs[0] = few;
      view.attrs.set("strides", region.strides);
      view.attrs.set("offset", region.offset);
    }
    return true;
  }

  // An operand that is read in part.
  struct Sliced {
    size_t input;
    ValueId base;
    Region region;
  };

  // What the node reads for `range` of its result's axis; operands that are not listed stay. Nothing where it cannot
  // make that part alone.
  std::optional<std::vector<Sliced>> operands_of(GraphBuilder& builder, const Node& node, size_t axis, Range range) {
    static const std::set<std::string> kByRow = {"norm", "copy", "softmax"};
    const Shape shape = g_.at(node.outputs[0]).type.shape;
    std::vector<Sliced> out;
    const auto slice = [&](size_t input, size_t along) {
      const Place p = builder.place(node.inputs[input]);
      out.push_back({input, p.base, sliced(p.region, along, range.begin, 1, range.count())});
      return (node.op != "matmul" && node.op != "softmax") || is_matrix(out.back().region);
    };
    const bool shared = node.op == "matmul" && g_.at(node.inputs[1]).type.shape.size() == 2;
    const bool by_row = kByRow.contains(node.op) && node.attrs.integer("pooled") == 0;
    if (by_row || (node.op == "matmul" && (shared || axis + 2 == shape.size()))) {
      if (!slice(0, axis)) return std::nullopt;
    } else if (node.op == "map") {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        const Shape& s = g_.at(node.inputs[i]).type.shape;
        const size_t lead = shape.size() - s.size();
        if (axis >= lead && s[axis - lead] != 1 && !slice(i, axis - lead)) return std::nullopt;
      }
    } else if (node.op == "attention" && axis == 1 && node.then.empty()) {
      // Query i sees the keys up to i + keys - queries: the last ones still do where only they are left.
      if (node.attrs.integer("causal") != 0 && range.end != shape[1]) return std::nullopt;
      slice(0, 1);
      if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
        // [batch, heads, queries, keys], of which some in front may be missing.
        const Shape& bias = g_.at(node.inputs[3]).type.shape;
        if (bias.size() >= 2 && bias[bias.size() - 2] != 1) slice(3, bias.size() - 2);
      }
    } else {
      return std::nullopt;
    }
    for (const Step& step : node.then.steps) {
      if (operand_of(step.kind) != StepOperand::kMatrix) continue;
      const auto input = static_cast<size_t>(step.operand);
      const Place p = builder.place(node.inputs[input]);
      const Shape repeated = repeated_shape(p.region.shape, shape);
      const auto rows = reshaped(p.region, repeated);
      if (repeated.empty() || !rows) return std::nullopt;
      const size_t lead = shape.size() - repeated.size();
      if (axis < lead) continue;  // the same rows for every index
      out.push_back({input, p.base, sliced(*rows, axis - lead, range.begin, 1, range.count())});
      if (!is_matrix(out.back().region)) return std::nullopt;
    }
    return out;
  }

  // The last axes of `shape`, as many as hold the elements of s; none where no number of them does.
  static Shape repeated_shape(const Shape& s, const Shape& shape) {
    for (size_t lead = 0; lead < shape.size(); ++lead) {
      const Shape last(shape.begin() + static_cast<std::ptrdiff_t>(lead), shape.end());
      if (elements(last) == elements(s)) return last;
    }
    return {};
  }

  Graph& g_;
};

}  // namespace

Status drop_rows(Graph& graph) {
  for (;;) {
    TS_ASSIGN(const bool cut, RowDropper(graph).cut_one());
    if (!cut) return {};
    TS_TRY(drop_dead(graph));
  }
}

}  // namespace tessera
