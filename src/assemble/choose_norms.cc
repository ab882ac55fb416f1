// SPDX-License-Identifier: Apache-2.0
#include "assemble/choose_norms.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"
#include "plan/choose.h"

namespace tessera {
namespace {

// Why no plan can be made of the graph, in a sentence; empty where one can.
Result<std::string> refusal(Graph graph, const PlanCase& of, const LowerOptions& lowering) {
  const auto lowered = lower_graph(std::move(graph), lowering);
  if (lowered.status().code() == Code::kRefused) {
    const std::string text = lowered.status().message();
    return text.substr(0, text.find('\n'));
  }
  TS_TRY(lowered.status());
  const std::vector<int> producers = lowered->producers();
  for (const Node& node : lowered->nodes) {
    const OpInfo* op = find_op(node.op);
    if (node.op == "view" || op == nullptr) continue;
    if (choose(*op, problem_of(*lowered, producers, node), lowering.plan.target, lowering.plan.tuning).variant ==
        nullptr)
      return cat("layer ", node.name, " has no kernel on ", info(lowering.plan.target).name, " in plan ", of.name());
  }
  return std::string();
}

// Norms that are folded in some plans, and whose plain value has no range for the others.
std::vector<std::string> without_range(const GraphsToPlan& plans, FoldedNorms& folded, const Graph& graph,
                                       const Ranges* ranges) {
  std::vector<std::string> norms;
  const std::vector<std::string> values = norms_between_layers(graph);  // others have the model's weights in all plans
  for (const Node& n : graph.nodes) {
    if (n.op != "norm" || std::find(values.begin(), values.end(), graph.at(n.outputs[0]).name) == values.end())
      continue;
    const bool everywhere = std::all_of(plans.cases.begin(), plans.cases.end(),
                                        [&](const PlanCase& of) { return folded.at(of).contains(n.name); });
    if (!everywhere && folded.any().contains(n.name) && ranges != nullptr &&
        !ranges->values.contains(plain_value(graph.at(n.outputs[0]).name)))
      norms.push_back(n.name);
  }
  return norms;
}

}  // namespace

std::set<std::string> FoldedNorms::any() const {
  std::set<std::string> all;
  for (const auto& [of, norms] : by_case_) all.insert(norms.begin(), norms.end());
  return all;
}

void FoldedNorms::apply(const PlanCase& of, QuantizeOptions& types) const {
  const auto here = by_case_.find(of);
  types.folded_norms = here == by_case_.end() ? std::set<std::string>() : here->second;
  types.plain_norms = any();
  for (const std::string& norm : types.folded_norms) types.plain_norms.erase(norm);
}

void FoldedNorms::drop(const std::string& norm) {
  for (auto& [of, norms] : by_case_) norms.erase(norm);
}

Result<NormChoice> choose_norms(const GraphsToPlan& plans, FoldedNorms folded, LowerOptions lowering) {
  NormChoice choice{.folded = std::move(folded), .why_kept = {}};
  if (choice.folded.none()) return choice;
  bool first = true;
  for (const PlanCase& of : plans.cases) {
    TS_ASSIGN(const Graph graph, plans.graph(of));
    if (std::exchange(first, false)) {
      const std::vector<std::string> unknown = without_range(plans, choice.folded, graph, lowering.types.ranges);
      for (const std::string& norm : unknown) choice.folded.drop(norm);
      if (!unknown.empty())
        choice.why_kept.push_back(cat("the calibration (", lowering.types.ranges->how, ") has no range of norm ",
                                      unknown[0], " without its gain (tessera calibrate measures it)"));
    }
    while (!choice.folded.none()) {
      choice.folded.apply(of, lowering.types);
      TS_ASSIGN(const std::string why, refusal(graph, of, lowering));
      if (why.empty()) break;
      choice.why_kept.push_back(why);
      if (choice.folded.at(of).empty()) {  // what other plans fold leaves it a layer without a kernel
        choice.folded = {};
      } else {
        choice.folded.at(of).clear();
      }
    }
  }
  return choice;
}

}  // namespace tessera
