// SPDX-License-Identifier: Apache-2.0
// Chip: what a GPU has, as data: SMs, shared memory, rates. Contracts, tile choice and predictions ask it.
// Builds give the same engine on every machine, so they use the first chip of the arch, not the GPU that is present.
#pragma once

#include <cstdint>
#include <string_view>

#include "archs/arch.h"

namespace tessera {

struct Chip {
  const char* name;
  Arch arch;
  int sms;
  int shared_bytes;  // of one block, at most
  int64_t l2_bytes;
  double bytes_per_s;                    // memory
  double f16_per_s, f8_per_s, i8_per_s;  // dense operations: multiplies and adds both count
};

inline constexpr Chip kChips[] = {
#define TS_CHIP(name, arch, sms, shared, l2, bytes, f16, f8, i8) \
  {name, Arch::arch, sms, shared, l2, bytes, f16, f8, i8},
#include "archs/chips.inc"
#undef TS_CHIP
};

// Contract: chips.inc has one of the arch.
constexpr const Chip& chip_of(Arch arch) {
  const Chip* found = nullptr;
  for (const Chip& c : kChips) {
    if (found == nullptr && c.arch == arch) found = &c;
  }
  return *found;
}
// By the whole name that the driver gives it; null where the list has none such. A part of a name is not enough:
// "NVIDIA GH200 480GB" and "NVIDIA H100 PCIe" have other memory and other rates.
constexpr const Chip* find_chip(std::string_view gpu) {
  for (const Chip& c : kChips) {
    if (gpu == c.name) return &c;
  }
  return nullptr;
}

}  // namespace tessera
