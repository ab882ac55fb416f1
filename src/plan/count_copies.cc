// SPDX-License-Identifier: Apache-2.0
#include "plan/count_copies.h"
#include "ir/layer_ops.h"

namespace tessera {
namespace {

// Reads the caller's input in another order than it lies in, for an embedding that comes right after it.
bool makes_patches(const Plan& plan, size_t step) {
  const auto tensor = [&](int t) -> const PlanTensor& { return plan.tensors[static_cast<size_t>(t)]; };
  const PlanTensor &x = tensor(plan.steps[step].in[0]), &y = tensor(plan.steps[step].out[0]);
  if (x.storage != Storage::kInput || x.desc.dense() || step + 1 == plan.steps.size()) return false;
  const PlanStep& next = plan.steps[step + 1];
  if (!multiplies_weights(next.op) || next.role != "embed" || next.in[0] < 0) return false;
  return tensor(next.in[0]).storage == y.storage && tensor(next.in[0]).offset_bytes == y.offset_bytes;
}

}  // namespace

CopyCount count_copies(const Plan& plan) {
  CopyCount m;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& s = plan.steps[i];
    if (s.op != "copy" || s.in.empty() || s.in[0] < 0 || makes_patches(plan, i)) continue;
    const auto type = [&](int t) { return plan.tensors[static_cast<size_t>(t)].desc.type; };
    ++(type(s.in[0]) == type(s.out[0]) ? m.copies : m.casts);
  }
  return m;
}

}  // namespace tessera
