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

#include "base/status.h"
#include "compile/compile.h"
#include "lower/fold_norms.h"

namespace tessera {

// Norms that are folded, by the batch of the plan.
class FoldedNorms {
 public:
  std::set<std::string>& at(int64_t batch) { return by_batch_[batch]; }
  // Those that some plan folds.
  std::set<std::string> any() const;
  bool none() const { return any().empty(); }
  // Types of a plan as it is lowered with this.
  void apply(int64_t batch, QuantizeOptions& types) const;
  // Folds this norm in no plan.
  void drop(const std::string& norm);

 private:
  std::map<int64_t, std::set<std::string>> by_batch_;
};

// The model at each batch that the engine has a plan for; each once, in order.
struct GraphsToPlan {
  std::vector<int64_t> batches;
  std::function<Result<Graph>(int64_t batch)> graph;
};

struct NormChoice {
  FoldedNorms folded;
  std::vector<std::string> why_kept;  // sentences, where norms that could be folded are not
};
// What of `folded` the plans run: none at a batch where a layer then has no kernel. A norm that one plan folds and
// another does not has a range of its own there; where calibration has none of it, it is folded nowhere. `lowering` is
// what plans are lowered with otherwise.
Result<NormChoice> choose_norms(const GraphsToPlan& plans, FoldedNorms folded, LowerOptions lowering);

}  // namespace tessera
