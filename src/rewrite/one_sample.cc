// SPDX-License-Identifier: Apache-2.0
#include "rewrite/one_sample.h"

#include <algorithm>

#include "ir/region.h"

namespace tessera {
namespace {

Shape with_axis(const Shape& own) {
  Shape shape{1};
  shape.insert(shape.end(), own.begin(), own.end());
  return shape;
}

Node same_numbers(ValueId from, ValueId to, const Shape& shape) {
  return {.name = {},
          .op = "view",
          .inputs = {from},
          .outputs = {to},
          .attrs = {{"strides", dense_strides(shape)}, {"offset", int64_t{0}}}};
}

}  // namespace

bool share_batch(const Graph& graph) {
  const auto shape = [&](ValueId id) -> const Shape& { return graph.at(id).type.shape; };
  if (graph.inputs.empty()) return true;
  const auto fits = [&](ValueId id) { return !shape(id).empty() && shape(id)[0] == shape(graph.inputs[0])[0]; };
  return !shape(graph.inputs[0]).empty() && std::all_of(graph.inputs.begin(), graph.inputs.end(), fits) &&
         std::all_of(graph.outputs.begin(), graph.outputs.end(), fits);
}

void make_one_sample(Graph& graph) {
  std::vector<Node> views;
  for (ValueId& in : graph.inputs) {
    Value port = graph.at(in);  // has the name that callers know
    const Shape own = port.type.shape;
    port.type.shape = with_axis(own);
    graph.at(in).name += ".own";
    const ValueId made = graph.add_value(std::move(port));
    views.push_back(same_numbers(made, in, own));
    in = made;
  }
  graph.nodes.insert(graph.nodes.begin(), views.begin(), views.end());
  for (ValueId& out : graph.outputs) {
    Value port = graph.at(out);
    port.type.shape = with_axis(port.type.shape);
    port.constant = false, port.data = {};
    graph.at(out).name += ".own";
    const Shape shape = port.type.shape;
    const ValueId made = graph.add_value(std::move(port));
    graph.nodes.push_back(same_numbers(out, made, shape));
    out = made;
  }
}

}  // namespace tessera
