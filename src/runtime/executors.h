// SPDX-License-Identifier: Apache-2.0
// One function per kind of device; bind() in executor.cc picks by the plan's arch.
#pragma once

#include "runtime/executor.h"

namespace tessera {

Result<std::unique_ptr<Executor>> bind_host(const Engine& engine, const Plan& plan, const ExecutorOptions& options);
// Compiled only where a CUDA toolkit was found.
Result<std::unique_ptr<Executor>> bind_cuda(const Engine& engine, const Plan& plan, const ExecutorOptions& options);

}  // namespace tessera
