// SPDX-License-Identifier: Apache-2.0
// Vectors of f32 from and to codes of f32, f16, bf16, e4m3 and i8, compiled once per SIMD target, and to codes of e2m1
// that have a byte each. Equal to decode and encode of the element's struct (NaN becomes some NaN where the element has
// one): encoding rounds to nearest even and saturates.
#if defined(TESSERA_TILES_CPU_CODES_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_TILES_CPU_CODES_H
#undef TESSERA_TILES_CPU_CODES_H
#else
#define TESSERA_TILES_CPU_CODES_H
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "types/bf16.h"
#include "types/e2m1.h"
#include "types/e4m3.h"
#include "types/element.h"
#include "types/f16.h"
#include "types/plain.h"
#include "types/small_int.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(E{}) with the struct of the element.
template <class Body>
HWY_INLINE void with_float_element(Element e, const Body& body) {
  switch (e) {
    case Element::f32:
      return body(F32{});
    case Element::f16:
      return body(F16{});
    case Element::bf16:
      return body(Bf16{});
    case Element::e4m3:
      return body(E4m3{});
    default:
      return;  // refused by every variant's contract
  }
}

// The same for those that only rows are converted from and to; false where none of them is it.
template <class Body>
HWY_INLINE bool with_row_element(Element e, const Body& body) {
  if (e == Element::i8) {
    body(I8{});
    return true;
  }
  if (e != Element::f32 && e != Element::f16 && e != Element::bf16 && e != Element::e4m3) return false;
  with_float_element(e, body);
  return true;
}

// D has as many lanes as codes are read.
template <class E, class D>
HWY_INLINE hn::Vec<D> load_codes(D d, const typename E::Storage* codes) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  if constexpr (std::is_same_v<E, F32>) {
    return hn::LoadU(d, codes);
  } else if constexpr (std::is_same_v<E, F16> && HWY_TARGET == HWY_SSE2) {
    // No conversion in the instruction set, and Highway's replacement reads Inf as 65536: as for e4m3 below, with Inf
    // and NaN put right.
    const auto wide = hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), codes));
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
    const auto placed = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7fffu)));
    const auto value = hn::BitCast(du, hn::Mul(hn::BitCast(d, placed), hn::Set(d, 0x1p112f)));
    const auto top = hn::Set(du, 0x0f800000u);
    const auto special = hn::IfThenElseZero(hn::Eq(hn::And(placed, top), top), hn::Set(du, 0x7f800000u));
    return hn::BitCast(d, hn::Or(hn::Or(value, special), sign));
  } else if constexpr (std::is_same_v<E, F16>) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), hn::LoadU(hn::Rebind<uint16_t, D>(), codes)));
  } else if constexpr (std::is_same_v<E, Bf16>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), codes))));
  } else if constexpr (std::is_same_v<E, I8>) {
    const auto bytes = hn::LoadU(hn::Rebind<int8_t, D>(), reinterpret_cast<const int8_t*>(codes));
    return hn::ConvertTo(d, hn::PromoteTo(di, bytes));
  } else {
    static_assert(std::is_same_v<E, E4m3>);
    // Exponent and fraction moved to their places in an f32 read as value * 2^-120, subnormals included; one product
    // puts the exponent right.
    const auto wide = hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, D>(), reinterpret_cast<const int8_t*>(codes)));
    const auto placed = hn::And(hn::ShiftLeft<20>(wide), hn::Set(di, static_cast<int32_t>(0x87f00000u)));
    const auto value = hn::Mul(hn::BitCast(d, placed), hn::Set(d, 0x1p120f));
    const auto nan = hn::Gt(hn::Abs(value), hn::Set(d, 448.0f));  // only the code of NaN lands here, as 480
    return hn::Or(value, hn::IfThenElseZero(nan, hn::BitCast(d, hn::Set(du, 0x7fc00000u))));
  }
}

template <class E, class D>
HWY_INLINE void store_codes(D d, hn::Vec<D> v, typename E::Storage* codes) {
  if constexpr (std::is_same_v<E, F32>) {
    hn::StoreU(v, d, codes);
  } else if constexpr (std::is_same_v<E, F16> && HWY_TARGET != HWY_SSE2) {
    const hn::Rebind<uint16_t, D> d16;
    const auto max = hn::Set(d, static_cast<float>(F16::kMax));
    const auto kept = hn::IfThenElse(hn::Gt(hn::Abs(v), max), hn::CopySign(max, v), v);
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), kept)), d16, codes);
  } else if constexpr (std::is_same_v<E, I8>) {
    const auto number = hn::IfThenElseZero(hn::Eq(v, v), v);
    const auto kept = hn::Min(hn::Max(number, hn::Set(d, -128.0f)), hn::Set(d, 127.0f));
    hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, D>(), hn::NearestInt(kept)), hn::Rebind<int8_t, D>(),
               reinterpret_cast<int8_t*>(codes));
  } else {
    using Bits = typename E::Bits;
    const hn::RebindToUnsigned<D> du;
    constexpr int kDrop = 23 - E::kMantissaBits;
    const auto bits = hn::BitCast(du, v);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    // Normal numbers: move the exponent to the new bias, then round the dropped bits; a carry runs into the exponent by
    // itself.
    const auto rebased = hn::Sub(magnitude, hn::Set(du, static_cast<uint32_t>(127 - Bits::kBias) << 23));
    const auto odd = hn::And(hn::ShiftRight<kDrop>(rebased), hn::Set(du, 1u));
    auto code = hn::ShiftRight<kDrop>(hn::Add(hn::Add(rebased, hn::Set(du, (1u << (kDrop - 1)) - 1)), odd));
    if constexpr (Bits::kBias != 127) {
      // Below the smallest normal: adding 2^23 units of the smallest subnormal makes the f32 addition itself round to
      // such units.
      constexpr uint32_t kMagic = static_cast<uint32_t>(Bits::kMinExponent - E::kMantissaBits + 23 + 127) << 23;
      const auto moved = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, hn::Set(du, kMagic)));
      const auto small = hn::Sub(hn::BitCast(du, moved), hn::Set(du, kMagic));
      const auto is_small = hn::Lt(magnitude, hn::Set(du, static_cast<uint32_t>(Bits::kMinExponent + 127) << 23));
      code = hn::IfThenElse(is_small, small, code);
    }
    code = hn::Min(code, hn::Set(du, Bits::kMaxCode));
    code = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), hn::Set(du, Bits::kNan), code);
    code = hn::Xor(code, hn::And(hn::ShiftRight<31 - (E::kBits - 1)>(bits), hn::Set(du, Bits::kSign)));
    using Storage = typename E::Storage;
    hn::StoreU(hn::TruncateTo(hn::Rebind<Storage, D>(), code), hn::Rebind<Storage, D>(), codes);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
