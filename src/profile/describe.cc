// SPDX-License-Identifier: Apache-2.0
#include "profile/describe.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "ops/matmul/matmul.h"
#include "profile/step_facts.h"

namespace tessera {
namespace {

bool any_step(const std::vector<const Plan*>& plans, const std::function<bool(const PlanStep&)>& holds) {
  return std::any_of(plans.begin(), plans.end(),
                     [&](const Plan* p) { return std::any_of(p->steps.begin(), p->steps.end(), holds); });
}

}  // namespace

Making making_of(const Engine& engine, const std::vector<const Plan*>& plans) {
  Making m;
  const auto stored = [&](const char* pattern) {
    return any_step(plans, [&](const PlanStep& s) { return s.stored.find(pattern) != std::string::npos; });
  };
  m.sparsity = stored("4:8") ? "4:8" : stored("2:4") ? "2:4" : "";
  m.promoted = any_step(plans, [](const PlanStep& s) { return s.attrs.integer(kPromoted) != 0; });
  // Of the sentences that refining left (precision/refine.h, calibrate/refine.h).
  constexpr std::pair<const char*, const char*> kMethods[] = {{"smooth", "smoothed with"},
                                                              {"awq", "awq with"},
                                                              {"clip", "with searched scales"},
                                                              {"compensate", "rounded with compensation"}};
  for (const auto& [method, words] : kMethods) {
    const bool used = std::any_of(engine.refinements.begin(), engine.refinements.end(),
                                  [&](const std::string& r) { return r.find(words) != std::string::npos; });
    if (used) m.refined += cat(m.refined.empty() ? "" : ",", method);
  }
  return m;
}

std::string Making::words() const {
  std::string text = sparsity;
  if (promoted) text += cat(text.empty() ? "" : ", ", "promoted sums");
  if (!refined.empty()) text += cat(text.empty() ? "" : ", ", "refined by ", refined);
  return text;
}

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
            .making = making_of(engine, {&plan}).words(),
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
