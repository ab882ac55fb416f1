// SPDX-License-Identifier: Apache-2.0
// Hopper's copies without a tensor map: bytes that follow each other, from global to shared memory.
#pragma once

#include <cstdint>

namespace tessera::sm90 {

// A multiple of 16 bytes, both addresses too; the barrier hears of them as of a box of TMA.
__device__ __forceinline__ void load_bytes(uint32_t to_shared, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to_shared),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace tessera::sm90
