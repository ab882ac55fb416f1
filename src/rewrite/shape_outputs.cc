// SPDX-License-Identifier: Apache-2.0
#include "rewrite/shape_outputs.h"

#include <algorithm>

#include "ops/builder.h"

namespace tessera {
namespace {

// `shape` with another size of its last axis.
Shape with_last(Shape shape, int64_t last) {
  shape.back() = last;
  return shape;
}

class OutputShaper {
 public:
  explicit OutputShaper(Graph& graph) : g_(graph) {}

  Status run(ValueId out) {
    const std::vector<int> producers = g_.producers();
    const int viewed = producers[static_cast<size_t>(out)];
    if (viewed < 0 || g_.nodes[static_cast<size_t>(viewed)].op != "view") return {};
    const Placement p = placement_of(g_, producers, out);
    const Type made = g_.at(p.base).type, wanted = g_.at(out).type;
    const int maker = producers[static_cast<size_t>(p.base)];
    if (maker < 0 || made.shape.empty() || wanted.shape.empty() || made.shape.back() != wanted.shape.back() ||
        std::count(g_.outputs.begin(), g_.outputs.end(), out) != 1)
      return {};
    const bool whole =
        elements(made.shape) == elements(wanted.shape) && p.offset == 0 && is_dense(wanted.shape, p.strides);
    const bool also_result = std::count(g_.outputs.begin(), g_.outputs.end(), p.base) != 0;
    if (!whole || also_result)
      return make_rows_again(out, static_cast<size_t>(maker), {wanted.shape, p.strides, p.offset});
    const Node node = g_.nodes[static_cast<size_t>(maker)];
    GraphBuilder builder(g_, static_cast<size_t>(maker));
    TS_ASSIGN(const bool fits, reshape_operands(builder, node, made.shape, wanted.shape));
    if (!fits) return {};
    // The maker now makes `out`; the old value is a view of it.
    Node& now = g_.nodes[builder.position()];
    now.outputs = {out};
    Node back{.name = {},
              .op = "view",
              .inputs = {out},
              .outputs = {p.base},
              .attrs = {{"strides", dense_strides(made.shape)}, {"offset", int64_t{0}}},
              .then = {},
              .role = {},
              .asked = {}};
    g_.nodes.insert(g_.nodes.begin() + static_cast<std::ptrdiff_t>(builder.position()) + 1, std::move(back));
    std::erase_if(g_.nodes, [&](const Node& n) { return n.op == "view" && n.outputs[0] == out; });
    return {};
  }

 private:
  // Operands whose rows are the result's take its new shape; false where one cannot without a copy. The node is changed
  // only where all can.
  Result<bool> reshape_operands(GraphBuilder& builder, const Node& node, const Shape& made, const Shape& wanted) {
    std::vector<size_t> rows;
    if (node.op == "matmul" && g_.at(node.inputs[1]).type.shape.size() == 2) {
      rows = {0};
    } else if (node.op == "norm" && node.attrs.integer("pooled") == 0) {
      rows = {0};
    } else if (node.op == "map") {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Shape& s = g_.at(node.inputs[i]).type.shape;
        if (s == made) {
          rows.push_back(i);
        } else if (elements(s) != 1 || s.size() > wanted.size()) {
          return false;
        }
      }
    }
    if (rows.empty()) return false;
    std::vector<std::pair<Place, Region>> views;
    for (const size_t i : rows) {
      const Place p = builder.place(node.inputs[i]);
      const auto region = reshaped(p.region, with_last(wanted, p.region.shape.back()));
      if (!region) return false;
      views.emplace_back(p, *region);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      TS_ASSIGN(const ValueId v, builder.view(views[i].first.base, views[i].second));
      g_.nodes[builder.position()].inputs[rows[i]] = v;
    }
    return true;
  }

  // Some rows of a norm's result, made once more from the same rows of its operand.
  Status make_rows_again(ValueId out, size_t maker, const Region& rows) {
    const Node node = g_.nodes[maker];
    if (node.op != "norm" || node.attrs.integer("pooled") != 0 || !node.then.empty() ||
        (rows.shape.back() > 1 && rows.strides.back() != 1) || rows.offset % rows.shape.back() != 0)
      return {};
    GraphBuilder builder(g_, maker + 1);
    const Place x = builder.place(node.inputs[0]);
    const auto region = composed(x.region, rows);
    if (!region) return {};
    Node again = node;
    again.outputs = {out};
    TS_ASSIGN(again.inputs[0], builder.view(x.base, *region));
    std::erase_if(g_.nodes, [&](const Node& n) { return n.op == "view" && n.outputs[0] == out; });
    g_.nodes.insert(g_.nodes.begin() + static_cast<std::ptrdiff_t>(builder.position()), std::move(again));
    return {};
  }

  Graph& g_;
};

}  // namespace

Status shape_outputs(Graph& graph) {
  for (const ValueId out : graph.outputs) TS_TRY(OutputShaper(graph).run(out));
  return {};
}

}  // namespace tessera
