// SPDX-License-Identifier: Apache-2.0
// Narrow floats by the array: the same bits as SmallFloat's encode (saturating) and decode, without branches, so that
// compilers turn the loops into SIMD for whatever machine they are built for. ElementInfo's conversions are these.
//   below the smallest normal, encode adds a power of two whose last place is the subnormal step: the adder itself
//   rounds to nearest even
#pragma once

#include <bit>
#include <cstdint>

#include "types/small_float.h"

namespace tessera {

template <int kExp, int kMan, SmallFloatForm kForm>
constexpr uint32_t encode_branch_free(SmallFloat<kExp, kMan, kForm>, float x) {
  using Bits = SmallFloat<kExp, kMan, kForm>;
  constexpr int kDrop = 23 - kMan;
  const uint32_t in = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = in & 0x7fffffffu;
  const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - Bits::kBias) << 23);
  uint32_t code = (rebased + (1u << (kDrop - 1)) - 1 + ((rebased >> kDrop) & 1)) >> kDrop;
  if constexpr (Bits::kBias != 127) {
    // 2^(kMinExponent - kMan + 23) has a last place of 2^(kMinExponent - kMan), one subnormal step.
    constexpr uint32_t kMagic = static_cast<uint32_t>(Bits::kMinExponent - kMan + 23 + 127) << 23;
    constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(Bits::kMinExponent + 127) << 23;
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic)) - kMagic;
    code = magnitude < kSmallestNormal ? small : code;
  }
  code = code > Bits::kMaxCode ? Bits::kMaxCode : code;
  code = magnitude > 0x7f800000u ? Bits::kNan : code;
  return code | (in >> 31) * Bits::kSign;
}

template <int kExp, int kMan, SmallFloatForm kForm>
constexpr float decode_branch_free(SmallFloat<kExp, kMan, kForm>, uint32_t code) {
  using Bits = SmallFloat<kExp, kMan, kForm>;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Bits::kBias) << 23;
  const uint32_t magnitude = code & (Bits::kSign - 1);
  const uint32_t sign = (code & Bits::kSign) << (31 - kExp - kMan);
  uint32_t bits = magnitude << (23 - kMan);
  if constexpr (Bits::kBias != 127) {
    // A subnormal under the exponent of the smallest normal is that normal plus the number wanted: the difference is
    // exact.
    constexpr uint32_t kSmallestNormal = kRebias + (1u << 23);
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(bits + kSmallestNormal) - std::bit_cast<float>(kSmallestNormal));
    bits = magnitude < (1u << kMan) ? small : bits + kRebias;
  }
  if constexpr (kForm == SmallFloatForm::kFn) {
    bits = magnitude == Bits::kNan ? 0x7fc00000u : bits;
  } else {
    bits = magnitude >= Bits::kInf ? (magnitude << (23 - kMan)) | 0x7f800000u : bits;
  }
  return std::bit_cast<float>(bits | sign);
}

template <class E>
void decode_array(const typename E::Storage* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = decode_branch_free(typename E::Bits{}, in[i]);
}

template <class E>
void encode_array(const float* in, int64_t n, typename E::Storage* out) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<typename E::Storage>(encode_branch_free(typename E::Bits{}, in[i]));
}

}  // namespace tessera
