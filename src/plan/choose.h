// SPDX-License-Identifier: Apache-2.0
// Chooses the variant of each node: the first of the op's list that runs on the target, keeps the promise of its precision and accepts the problem.
// One that calls itself slow there is taken only where no later one accepts. Nothing else is tried: a node that every variant refuses has no choice, and the plan fails with all reasons.
#pragma once

#include <string>
#include <vector>

#include "archs/arch.h"
#include "ops/op.h"
#include "plan/plan.h"

namespace tessera {

struct Choice {
  const Variant* variant = nullptr;  // null: nobody accepts
  std::string config;  // its tile shape; empty where it has only one
  Arithmetic arithmetic;
  std::vector<Layout> layouts;  // per input
  std::vector<Refusal> refusals;
};
Choice choose(const OpInfo& op, const Problem& problem, Arch target);

// Whether products made in `computed` are what the arch promises for operands stored in this type: its own arithmetic on a GPU; any arithmetic on
// decoded codes that is at least as wide on a host (the promise there is about storage). Integers without scales are ids, not a
// precision that anybody asked for.
bool keeps_promise(Arch arch, const QuantType& stored, const std::string& computed);

}  // namespace tessera
