// SPDX-License-Identifier: Apache-2.0
// What choices for Hopper are made for: the SMs and the shared memory of an H200.
#pragma once

#include "archs/chip.h"

namespace tessera::sm90 {

inline constexpr int kSms = chip_of(Arch::sm90).sms;
inline constexpr int kMostSharedBytes = chip_of(Arch::sm90).shared_bytes;

}  // namespace tessera::sm90
