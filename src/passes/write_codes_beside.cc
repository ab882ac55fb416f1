// SPDX-License-Identifier: Apache-2.0
#include "passes/write_codes_beside.h"

#include "ops/row_moments.h"
#include "passes/has_kernel.h"

namespace tessera {
namespace {

// Takes over the copy at index `copy`; false where it is none to take over.
bool take_over(Graph& g, const std::vector<int>& producers, size_t copy, Arch target) {
  const Node& node = g.nodes[copy];
  if (node.op != "copy" || !g.at(node.outputs[0]).type.quant.scaled() || node.inputs[0] == kNoValue) return false;
  const int maker = producers[static_cast<size_t>(node.inputs[0])];
  if (maker < 0) return false;
  Node& layer = g.nodes[static_cast<size_t>(maker)];
  const Beside beside = Beside::of(layer.attrs);
  if (layer.op != "matmul" || beside.moments == 0 || beside.codes != 0 || layer.outputs[0] != node.inputs[0]) return false;
  Node with = layer;
  with.attrs.set(kCodesBeside, int64_t{1});
  with.outputs.insert(with.outputs.begin() + 1, node.outputs[0]);
  const Problem p = problem_of(g, producers, with);
  if (!check_problem(*find_op(p.op), p).ok() || !has_kernel(p, target)) return false;
  layer = std::move(with);
  g.nodes.erase(g.nodes.begin() + static_cast<std::ptrdiff_t>(copy));
  return true;
}

}  // namespace

void write_codes_beside(Graph& graph, Arch target) {
  for (size_t n = 0; n < graph.nodes.size();) {
    if (!take_over(graph, graph.producers(), n, target)) ++n;
  }
}

}  // namespace tessera
