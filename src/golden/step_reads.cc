// SPDX-License-Identifier: Apache-2.0
#include "golden/step_reads.h"

#include <algorithm>

namespace tessera {
namespace {

struct Range {
  int64_t begin, end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};
Range range_of(const PlanTensor& t) {
  int64_t last = 0;
  for (size_t axis = 0; axis < t.desc.shape.size(); ++axis)
    last += std::max<int64_t>(0, t.desc.shape[axis] - 1) * t.desc.strides[axis];
  return {t.offset_bytes, t.offset_bytes + packed_bytes(t.desc.type.element, last + 1)};
}

}  // namespace

std::vector<std::vector<StepRead>> reads_of_steps(const Plan& plan) {
  std::vector<std::vector<StepRead>> reads(plan.steps.size());
  struct Written {
    Range range;
    size_t step;
  };
  std::vector<Written> memory;
  for (size_t j = 0; j < plan.steps.size(); ++j) {
    const PlanStep& step = plan.steps[j];
    for (size_t i = 0; i < step.in.size(); ++i) {
      if (step.in[i] < 0 || plan.tensors[static_cast<size_t>(step.in[i])].storage != Storage::kArena) continue;
      const Range r = range_of(plan.tensors[static_cast<size_t>(step.in[i])]);
      for (const Written& w : memory) {
        if (w.range.meets(r)) reads[j].push_back({i, w.step});
      }
    }
    for (const int t : step.out) {
      if (plan.tensors[static_cast<size_t>(t)].storage != Storage::kArena) continue;
      const Range r = range_of(plan.tensors[static_cast<size_t>(t)]);
      std::erase_if(memory, [&](const Written& w) { return w.range.meets(r); });
      memory.push_back({r, j});
    }
  }
  return reads;
}

std::vector<bool> steps_of_scores(const Plan& plan) {
  const std::vector<std::vector<StepRead>> reads = reads_of_steps(plan);
  std::vector<bool> found(plan.steps.size(), false);
  for (size_t j = plan.steps.size(); j-- > 0;) {
    const std::string& op = plan.steps[j].op;
    const bool passes_on = found[j] && (op == "map" || op == "copy" || op == "concat");
    for (const StepRead& r : reads[j]) {
      if (passes_on || (op == "softmax" && r.operand == 0) || (op == "attention" && r.operand == 3))
        found[r.step] = true;
    }
  }
  return found;
}

}  // namespace tessera
