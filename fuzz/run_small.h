// SPDX-License-Identifier: Apache-2.0
// Runs the host plans of an engine from a hostile file, where their work is small enough for a fuzzer.
#pragma once

#include "plan/engine.h"

namespace tessera::fuzz {

// Binds and runs each plan for `ref` or `cpu` once on bytes that are not all zero; verifies the engine and runs it by
// two sessions over one state, through each of its plans, where all its plans are such; errors are as good as results.
void run_small(const Engine& engine);

}  // namespace tessera::fuzz
