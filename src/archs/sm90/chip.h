// SPDX-License-Identifier: Apache-2.0
// What choices for Hopper are made for: the SMs, the shared memory and the L2 of an H200.
#pragma once

#include "archs/chip.h"

namespace tessera::sm90 {

inline constexpr int kSms = chip_of(Arch::sm90).sms;
inline constexpr int kMostSharedBytes = chip_of(Arch::sm90).shared_bytes;
// Clusters of so many blocks, an SM for each, that run side by side: a cluster lies in one GPC. Assumed, not measured:
// six GPCs of 16 SMs and two of 18. Chips differ in this.
constexpr int clusters_at_once(int blocks) { return 6 * (16 / blocks) + 2 * (18 / blocks); }
inline constexpr int64_t kL2Bytes = chip_of(Arch::sm90).l2_bytes;

}  // namespace tessera::sm90
