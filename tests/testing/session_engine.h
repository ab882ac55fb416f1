// SPDX-License-Identifier: Apache-2.0
// An engine file for tests of sessions, with golden values: graph `begin` puts x [1,rows,5] into a state and echoes it,
// graph `step` adds weights (runtime/test_engine.h) and gives the sum as y; the schedule is begin, ten times step. Each
// graph has a plan for kFewRows ("begin.rows2") and one for kMostRows. No header of the runtime: a test of tessera.hpp
// cannot have both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

inline constexpr int64_t kFewRows = 2, kMostRows = 4;
// Its path. `failing`: "begin.rows4" does not reproduce its golden values.
std::string session_engine(const std::filesystem::path& folder, bool failing = false);

}  // namespace tessera
