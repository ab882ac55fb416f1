// SPDX-License-Identifier: Apache-2.0
// Chooses the variant of each node, and its config: the fastest that a tuning table has measured for the problem;
// where it has none, the first of the op's list that runs on the target, keeps the promise of its precision and accepts
// the problem, with its first config. A variant that calls itself slow is taken only where no later one accepts.
// Nothing else is tried: a node that every variant refuses has no choice, and the plan fails with all reasons.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "archs/arch.h"
#include "op/op.h"
#include "plan/plan.h"
#include "plan/tune_cache.h"

namespace tessera {

struct Choice {
  const Variant* variant = nullptr;  // null: every variant refuses
  std::string config;                // empty where it has only one
  Arithmetic arithmetic;
  std::vector<OperandLayout> layouts;  // per input
  std::vector<Refusal> refusals;
  std::string slow;       // why it calls itself slow here, taken because all others refuse; empty: it does not
  bool measured = false;  // by the table's times; candidates that lost are refusals then
};
// `table`: of the target, or null.
Choice choose(const OpInfo& op, const Problem& problem, Arch target, const TuningTable* table = nullptr);

// The refusal of a candidate that the table's fastest beats. How much by stays in the table: times are no part of an
// engine.
inline constexpr const char* kSlowerAsMeasured = "slower, as the tuning table has it";
inline constexpr const char* kNotMeasured = "not measured in the tuning table";
// Why a variant does not run a problem on the target as promised, or is slow at it; empty where neither. Contract: the
// problem's operands lie in rows, as before anything was chosen.
std::string why_not(const OpInfo& op, const Variant& variant, const Problem& problem, Arch target);

// Whoever may run the problem on the target as promised, with each config, in the order of the list.
struct Candidate {
  const Variant* variant = nullptr;
  std::string config;
};
std::vector<Candidate> candidates(const OpInfo& op, const Problem& problem, Arch target);
// Whether a time is the candidate's; the candidate that a time belongs to, or null.
bool is_of(const TunedTime& time, const Candidate& candidate);
const Candidate* find_candidate(const std::vector<Candidate>& all, const TunedTime& time);
// A variant and its config: "matmul/sm90_fp8 128x192".
std::string kernel_name(std::string_view variant, std::string_view config);

}  // namespace tessera
