// SPDX-License-Identifier: Apache-2.0
// Memory in amounts that a file or a user decides: asked for before it is taken, so that too much is an error with a
// name and a number instead of a process that the system ends. Small amounts are never refused here.
#pragma once

#include <cstdint>
#include <string>

#include "base/buffer.h"
#include "base/status.h"

namespace tessera {

// What this process could still get: the least of the machine's free memory and its control group's and own limits.
int64_t available_memory();

// `what` completes "no memory for": "tensor 'head.weight'", "the arena of plan 'main'".
Status check_memory(int64_t bytes, const std::string& what);
Result<Buffer> allocate(int64_t bytes, const std::string& what);

}  // namespace tessera
