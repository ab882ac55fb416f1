// SPDX-License-Identifier: Apache-2.0
// What `inspect` says about a tuning table and the plan it chose for.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/plan.h"
#include "plan/tune_cache.h"

namespace tessera {

// Which table it is, of which GPU, and whether the plan was tuned by it. `table` may be null.
std::string table_sentence(const Plan& plan, const TuningTable* table);

// Candidates and times of every distinct problem of the plan that more than one may run. `table` may be null.
Status show_tuning(const Plan& plan, const TuningTable* table, bool json);

// "slower: 41.2 us against 37.0" for a refusal that stands for a lost measurement, where `table` is the one that the
// plan was tuned by; else empty.
std::string words_of_slower(const Plan& plan, const PlanStep& step, const Refusal& refusal, const TuningTable* table);

}  // namespace tessera
