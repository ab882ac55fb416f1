// SPDX-License-Identifier: Apache-2.0
// Which norms each plan of a GPU's engine folds into the layers around them (lower/fold_norms.h): every plan for
// itself, as its batch and the target's kernels allow. Weights are stored once: a norm that any plan folds has its gain
// and centring in the weights of all of them, and is a plain kernel where it is not folded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "assemble/plan_case.h"
#include "base/status.h"
#include "compile/compile.h"
#include "lower/fold_norms.h"

namespace tessera {

// Norms that are folded, by the plan's case.
class FoldedNorms {
 public:
  std::set<std::string>& at(const PlanCase& of) { return by_case_[of]; }
  // Those that some plan folds.
  std::set<std::string> any() const;
  bool none() const { return any().empty(); }
  // Types of a plan as it is lowered with this.
  void apply(const PlanCase& of, QuantizeOptions& types) const;
  // Folds this norm in no plan.
  void drop(const std::string& norm);

 private:
  std::map<PlanCase, std::set<std::string>> by_case_;
};

// The model in each case that the engine has a plan for; each once, in order.
struct GraphsToPlan {
  std::vector<PlanCase> cases;
  std::function<Result<Graph>(const PlanCase& of)> graph;
};

struct NormChoice {
  FoldedNorms folded;
  std::vector<std::string> why_kept;  // sentences, where norms that could be folded are not
};
// What of `folded` the plans run: none in a case where a layer then has no kernel. A norm that one plan folds and
// another does not has a range of its own there; where calibration has none of it, it is folded nowhere. `lowering` is
// what plans are lowered with otherwise.
Result<NormChoice> choose_norms(const GraphsToPlan& plans, FoldedNorms folded, LowerOptions lowering);

}  // namespace tessera
