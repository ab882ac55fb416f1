// SPDX-License-Identifier: Apache-2.0
// What choices for Hopper are made for: the SMs, the shared memory and the L2 of an H200.
#pragma once

#include "archs/chip.h"

namespace tessera::sm90 {

inline constexpr int kSms = chip_of(Arch::sm90).sms;
inline constexpr int kMostSharedBytes = chip_of(Arch::sm90).shared_bytes;
inline constexpr int64_t kL2Bytes = chip_of(Arch::sm90).l2_bytes;

}  // namespace tessera::sm90
