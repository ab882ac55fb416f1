// SPDX-License-Identifier: Apache-2.0
// Single codes of densely packed arrays. 4-bit codes lie two in a byte:
//   code i of an array is in byte i / 2, at bit 0 where i is even and at bit 4 where it is odd
// Layouts move codes with these, whatever they mean; bulk conversion to numbers is ElementInfo's.
#pragma once

#include <cstdint>
#include <cstring>

#include "types/small_float.h"

namespace tessera {

TS_HOST_DEVICE constexpr int64_t nibble_byte(int64_t i) { return i / 2; }
TS_HOST_DEVICE constexpr int nibble_shift(int64_t i) { return static_cast<int>(i % 2) * 4; }

// bits: 4, 8, 16, 32 or 64. Little endian, as all arrays of the product.
inline uint64_t code_at(const void* codes, int bits, int64_t i) {
  const auto* bytes = static_cast<const uint8_t*>(codes);
  if (bits == 4) return bytes[nibble_byte(i)] >> nibble_shift(i) & 15;
  uint64_t code = 0;
  std::memcpy(&code, bytes + i * (bits / 8), static_cast<size_t>(bits / 8));
  return code;
}

// The neighbour in a shared byte stays.
inline void set_code(void* codes, int bits, int64_t i, uint64_t code) {
  auto* bytes = static_cast<uint8_t*>(codes);
  if (bits == 4) {
    uint8_t& byte = bytes[nibble_byte(i)];
    byte = static_cast<uint8_t>((byte & ~(15 << nibble_shift(i))) | (code & 15) << nibble_shift(i));
  } else {
    std::memcpy(bytes + i * (bits / 8), &code, static_cast<size_t>(bits / 8));
  }
}

}  // namespace tessera
