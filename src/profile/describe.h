// SPDX-License-Identifier: Apache-2.0
// The part of a profile that needs no run: the engine's record and a line per step.
#pragma once

#include <string>
#include <vector>

#include "plan/engine.h"
#include "traces/profile.h"

namespace tessera {

// Bytes of the weights that these plans read, each once.
int64_t weight_bytes_of(const Engine& engine, const std::vector<const Plan*>& plans);

// What tells engines of one precision apart, as the flags of `tessera build` have it.
struct Making {
  std::string sparsity;   // "2:4", "4:8"; empty: dense
  bool promoted = false;  // --accumulate promoted
  std::string refined;    // of --refine: "smooth,clip"; empty: nothing
  std::string words() const;
};
Making making_of(const Engine& engine, const std::vector<const Plan*>& plans);

// `path`: of the engine's file, for its size; empty: not told.
Profile describe_plan(const Engine& engine, const Plan& plan, const std::string& path);

}  // namespace tessera
