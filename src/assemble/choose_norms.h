// SPDX-License-Identifier: Apache-2.0
// Which norms of a GPU's engine have no kernel of their own: folded into the layers around them (lower/fold_norms.h),
// or in one kernel with the mean over their tokens (lower/pool_norms.h). All plans of an engine mirror one golden plan,
// so this holds for all of them or for none, and is asked of every plan's graph before the first plan is made.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "compile/compile.h"
#include "lower/fold_norms.h"

namespace tessera {

// The model at each batch that the engine has a plan for, the golden plan's among them; each once.
struct GraphsToPlan {
  std::vector<int64_t> batches;
  std::function<Result<Graph>(int64_t batch)> graph;
};

struct NormChoice {
  std::set<std::string> folded;
  bool pooled = true;
  std::string why_kept;  // a sentence, where norms that could be folded or pooled in one plan are not
};
// What of `folded` and of pooling all plans can share: nothing of both where their graphs would differ, none folded
// where a layer then has no kernel. `lowering` is what they are lowered with otherwise.
Result<NormChoice> choose_norms(const GraphsToPlan& plans, std::set<std::string> folded, LowerOptions lowering);

}  // namespace tessera
