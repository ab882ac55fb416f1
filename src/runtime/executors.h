// SPDX-License-Identifier: Apache-2.0
// One function per kind of device; bind() in executor.cc picks by the plan's arch. And what their calls begin with.
#pragma once

#include "runtime/executor.h"
#include "runtime/state.h"

namespace tessera {

Result<std::unique_ptr<Executor>> bind_host(const Engine& engine, const Plan& plan, const ExecutorOptions& options);
// Compiled only where a CUDA toolkit was found.
Result<std::unique_ptr<Executor>> bind_cuda(const Engine& engine, const Plan& plan, const ExecutorOptions& options);

// Whether a plan can run in the arena that its caller brings (ExecutorOptions::arena, not null).
Status check_arena(const Plan& plan, const ExecutorOptions& options);

// The error of a call whose Turn is not its own. `own_state`: no other executor can have it.
Status busy(bool own_state);

}  // namespace tessera
