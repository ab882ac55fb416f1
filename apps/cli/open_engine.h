// SPDX-License-Identifier: Apache-2.0
// Engine files as commands open them: timed, and with the next step where one cannot be used.
#pragma once

#include <string>

#include "base/status.h"
#include "golden/load_check.h"
#include "plan/engine.h"

namespace tessera {

inline constexpr const char* kGoldenOfSmallest = "golden values are of the smallest sizes (--golden all makes all)";

// `seconds`, where given: mapping, checksums, manifest and the check of every reference in it.
Result<Engine> open_engine(const std::string& path, double* seconds = nullptr);

// Whether the engine's target is here (runtime/executor.h); if not, why, and what to do.
Status check_target(const Engine& engine);

// For a file that is not there: the nearest name in its folder, as a sentence that follows the error; empty where there
// is none, or where the file exists.
std::string hint_for_missing(const std::string& path);

// The highest amount of memory that the process has had so far, mapped files included.
int64_t peak_memory_bytes();

}  // namespace tessera
