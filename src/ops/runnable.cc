// SPDX-License-Identifier: Apache-2.0
#include "ops/runnable.h"

#include <algorithm>

#include "ops/ops.h"

namespace tessera {

bool keeps_promise(Arch arch, const QuantType& stored, Element computed) {
  if (info(arch).device == DeviceKind::kHost) return true;
  const ElementInfo& element = info(stored.element);
  if (element.kind == ElementKind::kInteger && !stored.scaled()) return true;
  if (stored.product) return computed == *stored.product;
  if (multiplies(arch, stored.element)) return computed == stored.element;
  return holds(info(computed), element);
}

bool keeps_promise(Arch arch, const OpInfo& op, const Problem& problem, Element computed) {
  if (op.promises < 0) return true;
  const QuantType& stored = problem.in[static_cast<size_t>(op.promises)].type;
  const bool by_number = op.by_number != nullptr && op.by_number(problem);
  return keeps_promise(arch, stored, computed) || (by_number && holds(info(computed), info(stored.element)));
}

Verdict runnable(const OpInfo& op, const Variant& variant, const Problem& problem, Arch target) {
  TS_REQUIRE(runs(target, variant.arch), "is for ", info(variant.arch).name);
  if (Verdict verdict = variant.accepts(problem); !verdict) return verdict;
  const Element computed = variant.arithmetic(problem).computed;
  TS_REQUIRE(keeps_promise(target, op, problem, computed), "multiplies in ", arithmetic_name(computed), ", asked for ",
             info(problem.in[static_cast<size_t>(op.promises)].type.element).name);
  return {};
}

bool runnable(const Problem& problem, Arch target, bool and_fast) {
  const OpInfo* op = find_op(problem.op);
  return op != nullptr && std::any_of(op->variants.begin(), op->variants.end(), [&](const Variant* v) {
           return !v->only_in_chains && runnable(*op, *v, problem, target) &&
                  (!and_fast || v->worthwhile == nullptr || v->worthwhile(problem));
         });
}

bool runnable(const Graph& graph, const std::vector<int>& producers, const Node& node, Arch target) {
  return find_op(node.op) != nullptr && runnable(problem_of(graph, producers, node), target);
}

}  // namespace tessera
