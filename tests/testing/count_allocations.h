// SPDX-License-Identifier: Apache-2.0
// Counts what a test program and its libraries allocate: whoever includes this gets a malloc family that counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

extern std::atomic<int64_t> allocations, bytes_held;
// Whether it does: not under sanitizers, which have a malloc of their own, nor without glibc.
bool counts_allocations();

}  // namespace tessera
