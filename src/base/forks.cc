// SPDX-License-Identifier: Apache-2.0
#include "base/forks.h"

#include <pthread.h>

#include <atomic>

namespace tessera {
namespace {

std::atomic<int64_t> count{0};
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });

}  // namespace

int64_t forks() { return count.load(std::memory_order_relaxed); }

}  // namespace tessera
