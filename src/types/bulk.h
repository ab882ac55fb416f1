// SPDX-License-Identifier: Apache-2.0
// Narrow elements by the array: the same bits as encode and decode of the element's struct, without branches, so that
// compilers turn the loops into SIMD for whatever machine they are built for. ElementInfo's conversions are these.
//   below the smallest normal, encode adds a power of two whose last place is the subnormal step: the adder itself
//   rounds to nearest even
// Elements of 4 bits lie two in a byte, the even index in the low nibble; a byte that the range shares with a neighbour
// keeps the neighbour's nibble.
#pragma once

#include <bit>
#include <cstdint>

#include "types/small_float.h"

namespace tessera {

template <bool kSaturate, int kExp, int kMan, SmallFloatForm kForm>
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
    code = blend_below(magnitude, kSmallestNormal, small, code);
  }
  code = blend_below(Bits::kMaxCode, code, kSaturate ? Bits::kMaxCode : Bits::kOverflow, code);
  code = blend_below(0x7f800000u, magnitude, Bits::kNan, code);
  return code ^ (in >> 31) * Bits::kSign;
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
    bits = blend_below(magnitude, 1u << kMan, small, bits + kRebias);
  }
  if constexpr (kForm == SmallFloatForm::kFn) {
    bits = blend_below(Bits::kNan - 1, magnitude, 0x7fc00000u, bits);
  } else if constexpr (kForm == SmallFloatForm::kIeee) {
    bits = blend_below(Bits::kInf - 1, magnitude, (magnitude << (23 - kMan)) | 0x7f800000u, bits);
  }
  return std::bit_cast<float>(bits | sign);
}

// Binary floats have a form of their own without branches; other narrow elements are written without them.
template <class E>
concept BinaryFloat = requires {
  typename E::Bits;
};

template <class E, bool kSaturate, class Wide>
inline typename E::Storage encode_one(Wide x) {
  if constexpr (BinaryFloat<E>) {
    return static_cast<typename E::Storage>(encode_branch_free<kSaturate>(typename E::Bits{}, static_cast<float>(x)));
  } else {
    return E::encode(x, kSaturate);
  }
}

template <class E, class Wide>
inline Wide decode_one(typename E::Storage code) {
  if constexpr (BinaryFloat<E>) {
    return static_cast<Wide>(decode_branch_free(typename E::Bits{}, code));
  } else {
    return static_cast<Wide>(E::decode(code));
  }
}

template <class E, class Wide>
void decode_array(const void* codes, int64_t first, int64_t n, Wide* out) {
  if constexpr (E::kBits >= 8) {
    const auto* in = static_cast<const typename E::Storage*>(codes) + first;
    for (int64_t i = 0; i < n; ++i) out[i] = decode_one<E, Wide>(in[i]);
  } else {
    static_assert(E::kBits == 4);
    const auto* bytes = static_cast<const uint8_t*>(codes) + first / 2;
    if (n > 0 && first % 2 != 0) {
      *out++ = decode_one<E, Wide>(static_cast<uint8_t>(*bytes++ >> 4));
      --n;
    }
    for (int64_t i = 0; i < n / 2; ++i) {
      out[2 * i] = decode_one<E, Wide>(bytes[i] & 15);
      out[2 * i + 1] = decode_one<E, Wide>(static_cast<uint8_t>(bytes[i] >> 4));
    }
    if (n % 2 != 0) out[n - 1] = decode_one<E, Wide>(bytes[n / 2] & 15);
  }
}

template <class E, bool kSaturate, class Wide>
void encode_array(const Wide* in, int64_t n, void* codes, int64_t first) {
  if constexpr (E::kBits >= 8) {
    auto* out = static_cast<typename E::Storage*>(codes) + first;
    for (int64_t i = 0; i < n; ++i) out[i] = encode_one<E, kSaturate>(in[i]);
  } else {
    static_assert(E::kBits == 4);
    auto* bytes = static_cast<uint8_t*>(codes) + first / 2;
    if (n > 0 && first % 2 != 0) {
      *bytes = static_cast<uint8_t>((*bytes & 15) | encode_one<E, kSaturate>(*in++) << 4);
      ++bytes;
      --n;
    }
    for (int64_t i = 0; i < n / 2; ++i) {
      const uint32_t low = encode_one<E, kSaturate>(in[2 * i]), high = encode_one<E, kSaturate>(in[2 * i + 1]);
      bytes[i] = static_cast<uint8_t>(low | high << 4);
    }
    if (n % 2 != 0) {
      bytes[n / 2] = static_cast<uint8_t>((bytes[n / 2] & 0xf0) | encode_one<E, kSaturate>(in[n - 1]));
    }
  }
}

}  // namespace tessera
