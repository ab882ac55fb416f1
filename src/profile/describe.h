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

// `path`: of the engine's file, for its size; empty: not told.
Profile describe_plan(const Engine& engine, const Plan& plan, const std::string& path);

}  // namespace tessera
