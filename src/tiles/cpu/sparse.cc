// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/sparse.h"

#include <algorithm>
#include <cstring>

#include "types/sparse24.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/sparse.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kChunk = 64;  // groups whose places are spread to bytes at a time

// Codes at places 0 ... 3 of as many groups as a vector has lanes.
template <class D>
struct Places {
  hn::Vec<D> at[4];
  HWY_INLINE Places(D d, hn::Vec<D> first, hn::Vec<D> second, hn::Vec<D> metadata) {
    const auto three = hn::Set(d, 3), low = hn::And(metadata, three),
               high = hn::And(hn::ShiftRight<2>(metadata), three);
    const auto place = [&](int i) HWY_ATTR {
      const auto here = hn::Set(d, static_cast<hn::TFromD<D>>(i));
      return hn::Or(hn::IfThenElseZero(hn::Eq(low, here), first), hn::IfThenElseZero(hn::Eq(high, here), second));
    };
    at[0] = place(0), at[1] = place(1), at[2] = place(2), at[3] = place(3);
  }
};

// 16 bytes of codes of type T; `metadata` holds a group per byte. Reads 32 bytes of kept codes at most, writes kLanes
// groups.
template <class T>
struct Expand {
  static constexpr int64_t kLanes = 16 / sizeof(T), kKeptBytes = 2 * 16, kBytes = 4 * 16;
  static HWY_INLINE void run(const uint8_t* kept, const uint8_t* metadata, uint8_t* out) {
    const hn::FixedTag<T, kLanes> d;
    T from[2 * kLanes], to[4 * kLanes];
    std::memcpy(from, kept, sizeof(from));
    hn::Vec<decltype(d)> first, second, places;
    hn::LoadInterleaved2(d, from, first, second);
    if constexpr (sizeof(T) == 1) {
      places = hn::LoadU(d, metadata);
    } else {
      places = hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint8_t, decltype(d)>(), metadata));
    }
    const Places<decltype(d)> p(d, first, second, places);
    hn::StoreInterleaved4(p.at[0], p.at[1], p.at[2], p.at[3], d, to);
    std::memcpy(out, to, sizeof(to));
  }
};
// Codes of 4 bits: a byte is the pair of a group, and two bytes are its four codes.
struct Nibble {};
template <>
struct Expand<Nibble> {
  static constexpr int64_t kLanes = 16, kKeptBytes = 16, kBytes = 32;
  static HWY_INLINE void run(const uint8_t* kept, const uint8_t* metadata, uint8_t* out) {
    const hn::FixedTag<uint8_t, 16> d;
    const auto pairs = hn::LoadU(d, kept);
    const Places<decltype(d)> p(d, hn::And(pairs, hn::Set(d, uint8_t{15})), hn::ShiftRight<4>(pairs),
                                hn::LoadU(d, metadata));
    hn::StoreInterleaved2(hn::Or(p.at[0], hn::ShiftLeft<4>(p.at[1])), hn::Or(p.at[2], hn::ShiftLeft<4>(p.at[3])), d,
                          out);
  }
};

// The last, shorter step goes through copies on the stack.
template <class T>
void expand_groups(const uint8_t* kept, const uint8_t* metadata, int64_t groups, uint8_t* out) {
  using E = Expand<T>;
  constexpr int64_t kPair = E::kKeptBytes / E::kLanes, kGroup = E::kBytes / E::kLanes;
  uint8_t places[kChunk];
  for (int64_t g = 0; g < groups; g += kChunk, kept += kChunk * kPair, metadata += kChunk / 2, out += kChunk * kGroup) {
    const int64_t count = std::min(kChunk, groups - g);
    for (int64_t i = 0; i < count / 2; ++i)
      places[2 * i] = metadata[i] & 15, places[2 * i + 1] = static_cast<uint8_t>(metadata[i] >> 4);
    if (count % 2 != 0) places[count - 1] = metadata[count / 2] & 15;
    int64_t i = 0;
    for (; i + E::kLanes <= count; i += E::kLanes) E::run(kept + i * kPair, places + i, out + i * kGroup);
    if (i == count) continue;
    uint8_t last[E::kKeptBytes] = {}, last_places[16] = {}, expanded[E::kBytes];
    std::memcpy(last, kept + i * kPair, static_cast<size_t>((count - i) * kPair));
    std::memcpy(last_places, places + i, static_cast<size_t>(count - i));
    E::run(last, last_places, expanded);
    std::memcpy(out + i * kGroup, expanded, static_cast<size_t>((count - i) * kGroup));
  }
}

void expand_groups_simd(int bits, const uint8_t* kept, const uint8_t* metadata, int64_t groups, uint8_t* out) {
  switch (bits) {
    case 4:
      return expand_groups<Nibble>(kept, metadata, groups, out);
    case 8:
      return expand_groups<uint8_t>(kept, metadata, groups, out);
    case 16:
      return expand_groups<uint16_t>(kept, metadata, groups, out);
    default:
      return expand_groups<uint32_t>(kept, metadata, groups, out);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(expand_groups_simd);

void expand_sparse_row(int bits, const void* kept, const void* metadata, int64_t row, int64_t col, int64_t n,
                       int64_t cols, void* codes) {
  HWY_DYNAMIC_DISPATCH(expand_groups_simd)
  (bits, static_cast<const uint8_t*>(kept) + (row * kept24_cols(cols) + col / 2) * bits / 8,
   static_cast<const uint8_t*>(metadata) + meta24_byte(row, col / 4, cols), groups24(n), static_cast<uint8_t*>(codes));
}

}  // namespace tessera
#endif
