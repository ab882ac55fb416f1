// SPDX-License-Identifier: Apache-2.0
// PowerRule: which power of two the largest magnitude of a block (amax) becomes, where scales are e8m0. max is the
// element's largest number, top its exponent: 448 and 8 for e4m3.
//   rceil   ceil(log2(amax / max)), quotient in f32   nothing saturates; NVIDIA's libraries and cvt.rp; the default
//   floor   floor(log2 amax) - top                    OCP's text; what lies above max * scale saturates
//   ceil    ceil(log2 amax) - top                     nothing saturates
//   even    floor(log2 r) - top                       r: amax rounded to one fraction bit, so up from 1.75 * 2^k
// All: zero gives code 0, what lies below 2^-127 code 0, Inf 0xFE, NaN 0xFF.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "types/small_float.h"

namespace tessera {

enum class PowerRule : uint8_t { kRceil, kFloor, kCeil, kEven };

constexpr const char* name_of(PowerRule rule) {
  constexpr const char* kNames[] = {"rceil", "floor", "ceil", "even"};
  return kNames[static_cast<int>(rule)];
}
constexpr std::optional<PowerRule> find_power_rule(std::string_view name) {
  for (PowerRule r : {PowerRule::kRceil, PowerRule::kFloor, PowerRule::kCeil, PowerRule::kEven}) {
    if (name == name_of(r)) return r;
  }
  return std::nullopt;
}

// The e8m0 code. amax is not negative; max is a finite f32 of at least 2.
TS_HOST_DEVICE inline uint8_t power_scale(PowerRule rule, float amax, float max) {
  const uint32_t bits = bits_of(amax);
  if (bits > 0x7f800000u) return 0xff;
  if (bits == 0x7f800000u) return 0xfe;
  if (rule == PowerRule::kRceil) {
    const uint32_t quotient = bits_of(amax / max), exponent = quotient >> 23;
    // The fraction of a power of two is 0; among f32's subnormals the only power that e8m0 has is 2^-127, with the
    // fraction 0x400000.
    return static_cast<uint8_t>(exponent + ((quotient & 0x7fffffu) > (exponent == 0 ? 0x400000u : 0u) ? 1 : 0));
  }
  const uint32_t rounding = rule == PowerRule::kCeil ? 0x7fffffu : rule == PowerRule::kEven ? 0x200000u : 0u;
  // A subnormal amax has a biased exponent of at most 1 after rounding and ends at code 0, for top is at least 1.
  const int top = static_cast<int>(bits_of(max) >> 23) - 127, code = static_cast<int>((bits + rounding) >> 23) - top;
  return static_cast<uint8_t>(code < 0 ? 0 : code);
}

}  // namespace tessera
