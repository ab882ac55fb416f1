// SPDX-License-Identifier: Apache-2.0
// The golden values that an engine holds, reproduced on this machine before its plans serve. Needs nothing of what
// made the engine.
#pragma once

#include <vector>

#include "base/fork_locks.h"
#include "base/status.h"
#include "golden/report.h"
#include "inputs/samples.h"
#include "plan/engine.h"
#include "runtime/executor.h"

namespace tessera {

inline constexpr const char* kNoGoldenValues =
    "the engine holds no golden values (built with --no-verify): it is not compared with its build";

// The golden inputs of the engine as samples; none where it holds no golden values.
Samples golden_samples(const Engine& engine, const Plan& plan);

// The golden values stored in the engine, reproduced by one plan on this machine: on the device and with the threads
// that `options` name.
Result<VerifyReport> check_golden(const Engine& engine, const Plan& plan, const ExecutorOptions& options = {});

// Which constants of one engine have been compared with their checksums: each is read once, whichever plans ask.
class CheckedConstants {
 public:
  // Those that the plan reads.
  Status check(const Engine& engine, const Plan& plan);

 private:
  ShortLock lock_;             // a fork waits for it; what is being read at a fork is read again in the child
  std::vector<bool> checked_;  // per constant; empty: none
};

// What a plan must pass before it serves: an error where it does not reproduce the golden values here. A plan without
// golden values (the engine has none, or only those of its smallest plans) reads weights that nothing has looked at:
// their checksums are compared.
Status require_golden(const Engine& engine, const Plan& plan, CheckedConstants& checked,
                      const ExecutorOptions& options = {});

}  // namespace tessera
