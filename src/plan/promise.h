// SPDX-License-Identifier: Apache-2.0
// The promise of a step in words: what it stores, computes and how it sums. make_plan writes the words, check_promise
// makes them again from the step's problem and its variant's own arithmetic, so that an engine file is believed for
// none of them.
#pragma once

#include <string>

#include "op/op.h"
#include "plan/engine.h"

namespace tessera {

// The type of a linear layer's weight, of an attention's q, k and v, and of any other op's result.
// Contract: check_problem found nothing; operands lie in the layouts that the variant asked for.
std::string stored_words(const OpInfo& op, const Problem& problem);
// "wgmma e4m3 (QGMMA), 14-bit sums".
std::string arithmetic_words(const Arithmetic& arithmetic);
// A step of the golden plan runs by the reference; its words name the variant that the target runs in its place.
std::string reference_words(const std::string& variant);

// Why a variant that the file lists as refused does not run the step, in its own words of today; what only the file can
// know (times, variants that this program does not have) is said to be the file's. Contract: check_promise found
// nothing, or op or variant are not known.
std::string refusal_words(const Engine& engine, const Plan& plan, const PlanStep& step, const Refusal& refusal);

// Whether a step's variant runs on its plan's arch, accepts its problem and keeps the promise of its precision, and
// whether what the file says of the step is so. In an engine that names a precision, linear layers and attention must
// have these words. Contract: check_problem found nothing, op and variant are known.
Status check_promise(const Engine& engine, const Plan& plan, const PlanStep& step);
// Whether the precision that the engine says was asked for is that of the blocks' linear layers in each plan, but for
// those that the user allowed another.
Status check_precision(const Engine& engine);

}  // namespace tessera
