// SPDX-License-Identifier: Apache-2.0
#include "profile/describe.h"

#include <filesystem>

#include "profile/step_facts.h"

namespace tessera {

int64_t weight_bytes_of(const Engine& engine, const std::vector<const Plan*>& plans) {
  int64_t weights = 0;
  std::vector<bool> read(engine.constants.size(), false);
  for (const Plan* plan : plans) {
    for (const PlanTensor& t : plan->tensors) {
      if (t.storage != Storage::kConstant || t.index < 0 || read[static_cast<size_t>(t.index)]) continue;
      read[static_cast<size_t>(t.index)] = true;
      weights += static_cast<int64_t>(engine.constants[static_cast<size_t>(t.index)].data.size());
    }
  }
  return weights;
}

Profile describe_plan(const Engine& engine, const Plan& plan, const std::string& path) {
  Profile p{.source = "tessera",
            .path = path,
            .model = engine.model,
            .precision = engine.precision,
            .machine = {},
            .plan = plan.name,
            .batch = plan.batch};
  for (const PlanStep& step : plan.steps) p.kernels.push_back(facts_of(plan, step));
  std::error_code error;
  if (const auto bytes = std::filesystem::file_size(path, error); !path.empty() && !error)
    p.engine_bytes = static_cast<int64_t>(bytes);
  p.weight_bytes = weight_bytes_of(engine, {&plan});
  p.arena_bytes = plan.arena_bytes;
  return p;
}

}  // namespace tessera
