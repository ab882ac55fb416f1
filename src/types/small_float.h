// SPDX-License-Identifier: Apache-2.0
// Encoding and decoding of narrow binary floats, once for all of them: kExp exponent bits, kMan fraction bits, bias
// 2^(kExp-1)-1. Host and device. Rounds to nearest even. Codes with an all-ones exponent: Inf and NaN (kIeee); numbers,
// but for the all-ones fraction, which is NaN (kFn); numbers without exception (kFinite).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TS_HOST_DEVICE __host__ __device__
#else
#define TS_HOST_DEVICE
#endif

namespace tessera {

TS_HOST_DEVICE inline uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}
TS_HOST_DEVICE inline float float_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// x < limit ? a : b, for x and limit below 2^31. Written without a comparison: compilers keep a float sum that only one
// side of ?: needs behind a branch (it might trap), and branches end SIMD.
TS_HOST_DEVICE constexpr uint32_t blend_below(uint32_t x, uint32_t limit, uint32_t a, uint32_t b) {
  const auto below = static_cast<uint32_t>(static_cast<int32_t>(x - limit) >> 31);
  return b ^ ((a ^ b) & below);
}

enum class SmallFloatForm : uint8_t { kIeee, kFn, kFinite };

template <int kExp, int kMan, SmallFloatForm kForm>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExp - 1)) - 1;
  static constexpr int kMinExponent = 1 - kBias;
  static constexpr uint32_t kSign = 1u << (kExp + kMan);
  // Exponent all ones, fraction zero: infinity in kIeee, an ordinary number in the other forms.
  static constexpr uint32_t kInf = ((1u << kExp) - 1) << kMan;
  // What NaN becomes, to be combined with the sign by xor. kFinite has none: minus zero for NaN, zero for -NaN, as in
  // ml_dtypes.
  static constexpr uint32_t kNan = kForm == SmallFloatForm::kFinite ? kSign
                                   : kForm == SmallFloatForm::kFn   ? kSign - 1
                                                                    : kInf | (1u << (kMan - 1));
  static constexpr uint32_t kMaxCode = kForm == SmallFloatForm::kFinite ? kSign - 1
                                       : kForm == SmallFloatForm::kFn   ? kNan - 1
                                                                        : kInf - 1;
  // What overflow becomes where a cast does not saturate.
  static constexpr uint32_t kOverflow = kForm == SmallFloatForm::kFinite ? kMaxCode
                                        : kForm == SmallFloatForm::kFn   ? kNan
                                                                         : kInf;

  // Saturating: magnitudes that would round beyond the largest number, and infinities, become the largest number.
  // Not saturating: they become Inf (kIeee) or NaN (kFn); kFinite saturates all the same.
  TS_HOST_DEVICE static uint32_t encode(float x, bool saturate) {
    const uint32_t in = bits_of(x);
    const uint32_t sign = (in >> 31) * kSign;
    const uint32_t magnitude = in & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign ^ kNan;
    const uint32_t overflow = saturate ? kMaxCode : kOverflow;
    if (magnitude == 0x7f800000u) return sign | overflow;
    const int exponent = static_cast<int>(magnitude >> 23) - 127;
    uint32_t code;
    if (exponent >= kMinExponent) {
      // Move the exponent to the new bias, then round the 23 - kMan dropped bits; a carry runs into the exponent by
      // itself.
      const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - kBias) << 23);
      constexpr int kDrop = 23 - kMan;
      if constexpr (kDrop == 0) {
        code = rebased;
      } else {
        code = (rebased + (1u << (kDrop - 1)) - 1 + ((rebased >> kDrop) & 1)) >> kDrop;
      }
    } else {
      // Below the smallest normal: the code is the value in units of 2^(kMinExponent - kMan). Inputs that are subnormal
      // themselves have exponent -127 here and an implicit 0; they vanish unless the target reaches as low (bf16).
      const uint32_t fraction = (magnitude & 0x7fffffu) | (magnitude >= 0x800000u ? 0x800000u : 0u);
      const int shift = (kMinExponent - (exponent < -126 ? -126 : exponent)) + (23 - kMan);
      if (shift > 24) {
        code = 0;
      } else if (shift == 0) {
        code = fraction;
      } else {
        const uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1), half = 1u << (shift - 1);
        code = kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
      }
    }
    return sign | (code > kMaxCode ? overflow : code);
  }

  TS_HOST_DEVICE static float decode(uint32_t code) {
    const uint32_t sign = (code & kSign) ? 0x80000000u : 0u;
    const uint32_t magnitude = code & (kSign - 1);
    if constexpr (kForm == SmallFloatForm::kFn) {
      if (magnitude == kNan) return float_of(sign | 0x7fc00000u);
    } else if constexpr (kForm == SmallFloatForm::kIeee) {
      if (magnitude >= kInf) return float_of(sign | 0x7f800000u | ((magnitude & (kInf ^ (kSign - 1))) << (23 - kMan)));
    }
    if (magnitude >> kMan)
      return float_of(sign | ((magnitude << (23 - kMan)) + (static_cast<uint32_t>(127 - kBias) << 23)));
    if constexpr (kBias == 127) {
      return float_of(sign | (magnitude << (23 - kMan)));  // same exponent range as f32: subnormals stay subnormals
    } else {
      // 2^(kMinExponent - kMan) is a normal f32 for every narrower range, so this product is exact.
      const float unit = float_of(static_cast<uint32_t>(kMinExponent - kMan + 127) << 23);
      const float value = static_cast<float>(magnitude) * unit;
      return sign ? -value : value;
    }
  }
};

}  // namespace tessera
