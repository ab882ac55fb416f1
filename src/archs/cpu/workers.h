// SPDX-License-Identifier: Apache-2.0
// How many threads are worth waking. One that sleeps takes 5 to 50 us until it works, on a virtual machine more than on
// a desk, and whoever shares out the work waits for the last. A core makes some 20 to 80 products a nanosecond.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/parallel.h"

namespace tessera {

inline constexpr int64_t kLeastProductsPerThread = int64_t{1} << 19;
// Reading and unpacking a weight takes as long as so many products with it.
inline constexpr int64_t kProductsOfAWeight = 12;

// Of the threads that parallel_for would use here, for `rows` rows times so many weights.
inline int64_t workers_for(int64_t rows, int64_t weights) {
  const int64_t worth = std::max(rows, kProductsOfAWeight) * weights / kLeastProductsPerThread;
  return worth <= 1 ? 1 : std::min<int64_t>(worth, threads());
}

}  // namespace tessera
