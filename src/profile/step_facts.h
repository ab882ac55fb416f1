// SPDX-License-Identifier: Apache-2.0
// What is known of a plan step before anything runs: the line of a profile without its time.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"
#include "traces/profile.h"

namespace tessera {

// Kernel and tile, layer, class, precisions, arithmetic, flops and bytes; no time. Contract: the op is known.
KernelTime facts_of(const Plan& plan, const PlanStep& step);

// The class of a problem's kernel. A copy that changes the type or the order of its numbers is a conversion.
KernelClass class_of(const Problem& problem);

// The word of profiles for an arithmetic or an element: "e4m3" is "fp8", "f16" is "fp16", "e2m1" is "fp4".
std::string precision_word(std::string_view computed);

// Bytes that one run of the problem must move: every operand and result once. Of a table only the rows that are read,
// of a cache only those that are written, of an operand that repeats along an axis only what lies in memory.
double moved_bytes(const Problem& problem);

}  // namespace tessera
