// SPDX-License-Identifier: Apache-2.0
#include "lower/quantize_in_epilogue.h"

#include "op/extra_results.h"
#include "ops/ops.h"
#include "ops/runnable.h"

namespace tessera {
namespace {

// Takes over the copy at index `copy`, of the result itself or of all its rows in another grouping; false where it is
// none to take over.
bool take_over(Graph& g, const std::vector<int>& producers, size_t copy, Arch target) {
  const Node node = g.nodes[copy];
  if (node.op != "copy" || !g.at(node.outputs[0]).type.quant.scaled() || node.inputs[0] == kNoValue) return false;
  const Placement from = placement_of(g, producers, node.inputs[0]);
  const int maker = producers[static_cast<size_t>(from.base)];
  if (maker < 0) return false;
  const Node layer = g.nodes[static_cast<size_t>(maker)];
  const ExtraResults extra = ExtraResults::of(layer.attrs);
  if (layer.op != "matmul" || extra.moments == 0 || extra.codes != 0 || layer.outputs[0] != from.base) return false;
  const Shape y = g.at(from.base).type.shape, shape = g.at(node.inputs[0]).type.shape;
  if (elements(shape) != elements(y) || from.offset != 0 || !is_dense(shape, from.strides) || shape.empty() ||
      shape.back() != y.back())
    return false;
  Node with = layer;
  with.attrs.set(kCodesResult, int64_t{1});
  ValueId codes = node.outputs[0];
  if (shape != y) {
    Value whole = g.at(codes);
    whole.name = g.at(from.base).name + ".codes";
    whole.type.shape = y;
    codes = g.add_value(std::move(whole));
  }
  with.outputs.insert(with.outputs.begin() + 1, codes);
  std::vector<int> now = producers;
  now.resize(g.values.size(), -1);
  const Problem p = problem_of(g, now, with);
  if (!check_problem(*find_op(p.op), p).ok() || !runnable(p, target)) return false;
  g.nodes[static_cast<size_t>(maker)] = std::move(with);
  if (shape == y) {
    g.nodes.erase(g.nodes.begin() + static_cast<std::ptrdiff_t>(copy));
  } else {
    g.nodes[copy] = {.name = {},
                     .op = "view",
                     .inputs = {codes},
                     .outputs = node.outputs,
                     .attrs = {{"strides", dense_strides(shape)}, {"offset", int64_t{0}}}};
  }
  return true;
}

}  // namespace

void quantize_in_epilogue(Graph& graph, Arch target) {
  for (size_t n = 0; n < graph.nodes.size();) {
    if (!take_over(graph, graph.producers(), n, target)) ++n;
  }
}

}  // namespace tessera
