// SPDX-License-Identifier: Apache-2.0
#include "assemble/choose_norms.h"

#include <algorithm>
#include <optional>

#include "ops/ops.h"
#include "plan/choose.h"

namespace tessera {
namespace {

// The first layer that no kernel of the target takes; empty where all run.
std::string layer_without_kernel(const Graph& lowered, const PlanOptions& plan) {
  const std::vector<int> producers = lowered.producers();
  for (const Node& node : lowered.nodes) {
    const OpInfo* op = find_op(node.op);
    if (node.op == "view" || op == nullptr) continue;
    if (choose(*op, problem_of(lowered, producers, node), plan.target, plan.tuning).variant == nullptr)
      return node.name;
  }
  return "";
}

struct Answer {
  bool alike = true;  // as many steps in every plan
  std::string why;    // not alike, or not run: a sentence
};

Result<Answer> ask(const GraphsToPlan& plans, const LowerOptions& lowering) {
  std::optional<int64_t> steps;
  for (const int64_t batch : plans.batches) {
    TS_ASSIGN(Graph graph, plans.graph(batch));
    const auto lowered = lower_graph(std::move(graph), lowering);
    if (lowered.status().code() == Code::kRefused) return Answer{true, lowered.status().message()};
    TS_TRY(lowered.status());
    if (const std::string layer = layer_without_kernel(*lowered, lowering.plan); !layer.empty())
      return Answer{true,
                    cat("layer ", layer, " has no kernel on ", info(lowering.plan.target).name, " at batch ", batch)};
    const int64_t here =
        std::count_if(lowered->nodes.begin(), lowered->nodes.end(), [](const Node& n) { return n.op != "view"; });
    if (steps && *steps != here) return Answer{false, "the target has a kernel for it at some of the batches only"};
    steps = here;
  }
  return Answer{};
}

}  // namespace

Result<NormChoice> choose_norms(const GraphsToPlan& plans, std::set<std::string> folded, LowerOptions lowering) {
  NormChoice choice{.folded = std::move(folded)};
  while (!choice.folded.empty() || (choice.pooled && plans.batches.size() > 1)) {
    lowering.types.folded_norms = choice.folded;
    lowering.types.pooled_norms = choice.pooled;
    TS_ASSIGN(const Answer answer, ask(plans, lowering));
    // Without folded norms a layer that has no kernel is the build's to refuse, by name.
    if (answer.why.empty() || (answer.alike && choice.folded.empty())) break;
    choice.folded.clear();
    choice.pooled = choice.pooled && answer.alike;
    if (choice.why_kept.empty()) choice.why_kept = answer.why.substr(0, answer.why.find('\n'));
  }
  return choice;
}

}  // namespace tessera
