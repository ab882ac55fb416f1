// SPDX-License-Identifier: Apache-2.0
#include "assemble/choose_norms.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"
#include "plan/choose.h"

namespace tessera {
namespace {

// Why no plan can be made of the graph, in a sentence; empty where one can.
Result<std::string> refusal(Graph graph, int64_t batch, const LowerOptions& lowering) {
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
      return cat("layer ", node.name, " has no kernel on ", info(lowering.plan.target).name, " at batch ", batch);
  }
  return std::string();
}

// Norms that are folded in some plans, and whose plain value has no range for the others.
std::vector<std::string> without_range(const GraphsToPlan& plans, FoldedNorms& folded, const Graph& graph,
                                       const Ranges* ranges) {
  std::vector<std::string> norms;
  for (const Node& n : graph.nodes) {
    const bool everywhere = std::all_of(plans.batches.begin(), plans.batches.end(),
                                        [&](int64_t batch) { return folded.at(batch).contains(n.name); });
    if (n.op == "norm" && !everywhere && folded.any().contains(n.name) && ranges != nullptr &&
        !ranges->values.contains(plain_value(graph.at(n.outputs[0]).name)))
      norms.push_back(n.name);
  }
  return norms;
}

}  // namespace

std::set<std::string> FoldedNorms::any() const {
  std::set<std::string> all;
  for (const auto& [batch, norms] : by_batch_) all.insert(norms.begin(), norms.end());
  return all;
}

void FoldedNorms::apply(int64_t batch, QuantizeOptions& types) const {
  const auto here = by_batch_.find(batch);
  types.folded_norms = here == by_batch_.end() ? std::set<std::string>() : here->second;
  types.plain_norms = any();
  for (const std::string& norm : types.folded_norms) types.plain_norms.erase(norm);
}

void FoldedNorms::drop(const std::string& norm) {
  for (auto& [batch, norms] : by_batch_) norms.erase(norm);
}

Result<NormChoice> choose_norms(const GraphsToPlan& plans, FoldedNorms folded, LowerOptions lowering) {
  NormChoice choice{.folded = std::move(folded), .why_kept = {}};
  if (choice.folded.none()) return choice;
  bool first = true;
  for (const int64_t batch : plans.batches) {
    TS_ASSIGN(const Graph graph, plans.graph(batch));
    if (std::exchange(first, false)) {
      const std::vector<std::string> unknown = without_range(plans, choice.folded, graph, lowering.types.ranges);
      for (const std::string& norm : unknown) choice.folded.drop(norm);
      if (!unknown.empty())
        choice.why_kept.push_back(cat("the calibration (", lowering.types.ranges->how, ") has no range of norm ",
                                      unknown[0], " without its gain (tessera calibrate measures it)"));
    }
    while (!choice.folded.none()) {
      choice.folded.apply(batch, lowering.types);
      TS_ASSIGN(const std::string why, refusal(graph, batch, lowering));
      if (why.empty()) break;
      choice.why_kept.push_back(why);
      if (choice.folded.at(batch).empty()) {  // what other plans fold leaves it a layer without a kernel
        choice.folded = {};
      } else {
        choice.folded.at(batch).clear();
      }
    }
  }
  return choice;
}

}  // namespace tessera
