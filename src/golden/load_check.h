// SPDX-License-Identifier: Apache-2.0
// The golden values that an engine holds, reproduced on this machine before its plans serve. Needs nothing of what
// made the engine.
#pragma once

#include "base/status.h"
#include "golden/report.h"
#include "inputs/samples.h"
#include "plan/engine.h"

namespace tessera {

inline constexpr const char* kNoGoldenValues =
    "the engine holds no golden values (built with --no-verify): it is not compared with its build";

// The golden inputs of the engine as samples; none where it holds no golden values.
Samples golden_samples(const Engine& engine, const Plan& plan);

// The golden values stored in the engine, reproduced by one plan on this machine.
Result<VerifyReport> check_golden(const Engine& engine, const Plan& plan);
// What a plan must pass before it serves: an error where it does not reproduce the golden values here. An engine that
// holds none passes.
Status require_golden(const Engine& engine, const Plan& plan);

}  // namespace tessera
