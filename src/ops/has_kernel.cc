// SPDX-License-Identifier: Apache-2.0
#include "ops/has_kernel.h"

#include <algorithm>

#include "op/op.h"
#include "ops/ops.h"

namespace tessera {

bool has_kernel(const Problem& problem, Arch target) {
  const OpInfo* op = find_op(problem.op);
  return op != nullptr && std::any_of(op->variants.begin(), op->variants.end(),
                                      [&](const Variant* v) { return runs(target, v->arch) && v->accepts(problem); });
}

bool has_kernel(const Graph& graph, const std::vector<int>& producers, const Node& node, Arch target) {
  return find_op(node.op) != nullptr && has_kernel(problem_of(graph, producers, node), target);
}

}  // namespace tessera
