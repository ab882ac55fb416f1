// SPDX-License-Identifier: Apache-2.0
// Graph -> plan: variants chosen, weights packed as they want them, every tensor placed. Fails with a text that names
// each layer which cannot run as asked, and why.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "plan/engine.h"
#include "plan/tune_cache.h"

namespace tessera {

// Constants of an engine, each kept once however many plans use it; and its states, which plans find by name. Without
// states, as in golden plans, those of a graph are inputs and outputs like any others: the plan is a function.
class ConstantPool {
 public:
  explicit ConstantPool(std::vector<EngineConstant>& constants, std::vector<EngineState>* states = nullptr)
      : constants_(constants), states_(states) {}
  // Index of the constant with these bytes; `name` is kept from the first one.
  int64_t add(const std::string& name, Bytes bytes);
  bool has_states() const { return states_ != nullptr; }
  // Index of the state of this name, with room for so many bytes.
  int64_t state(const std::string& name, int64_t bytes);

 private:
  int64_t index_of(const std::string& name, Bytes bytes);

  std::vector<EngineConstant>& constants_;
  std::vector<EngineState>* states_;
  std::unordered_multimap<uint64_t, int64_t> by_hash_;
  // Bytes that were added, and their index: plans share them, and each is looked at once. They are kept, so that no
  // others have their address.
  std::map<std::pair<const uint8_t*, size_t>, std::pair<Bytes, int64_t>> by_address_;
};

struct PlanOptions {
  std::string name = "main";
  Arch target = Arch::cpu;
  std::string graph = "main";
  int64_t batch = 1;
  std::map<std::string, int64_t> sizes = {};  // Plan::sizes
  // Run every step by its reference instead (arch ref), over the constants as the target packs them.
  bool as_reference = false;
  // Neighbouring steps of few rows may be one launch (form_chains.h).
  bool chains = false;
  // Times that kernels are chosen by where it has the problem; null: by the order of the lists.
  const TuningTable* tuning = nullptr;
};

// Contract: canonical graph with types assigned; strided inputs only where ops allow them. A refusal names every node
// that no variant runs (Status::layers).
Result<Plan> make_plan(const Graph& graph, const PlanOptions& options, ConstantPool& pool);

}  // namespace tessera
