// SPDX-License-Identifier: Apache-2.0
// One pool of threads for the whole process. parallel_for hands out [begin, end) pieces; which thread takes a piece is free, so the body's result
// may not depend on it. Nested calls run in the calling thread.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera {

// Threads used by parallel_for, the caller included. 0 = every core the process may use.
void set_threads(int threads);
int threads();

// Calls body(begin, end) for pieces of [0, n) of at most `grain` items.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace tessera
