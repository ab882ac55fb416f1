// SPDX-License-Identifier: Apache-2.0
// int8 products: packing, the product for processors without matrix instructions, and the choice.
#include <algorithm>
#include <cstring>
#include <vector>

#include "archs/cpu/features.h"
#include "tiles/cpu/matrix_kernels.h"
#include "tiles/cpu/panels.h"
#include "tiles/cpu/product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/int8.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tiles/cpu/register_tile.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Pairs of numbers of 16 bits in each lane: two products are added at a time.
struct PairLanes {
  using D = hn::CappedTag<int32_t, 16>;
  static HWY_INLINE hn::Vec<D> multiply_add(hn::Vec<D> w, hn::Vec<D> x, hn::Vec<D> sum) {
    const hn::RepartitionToNarrow<D> d16;
    return hn::Add(sum, hn::WidenMulPairwiseAdd(D(), hn::BitCast(d16, w), hn::BitCast(d16, x)));
  }
};
constexpr int kRows = tile_rows<PairLanes>();

int64_t pair_rows_simd() { return kRows; }

void widen(const int8_t* from, int64_t n, int16_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

void pack_x_pairs_simd(const int8_t* x, int64_t row_stride, int64_t rows, int64_t k, int32_t* scratch,
                       int32_t* panels) {
  const int64_t pairs = round_up(k, 8) / 2;
  const int32_t* from[kRows];
  for (int64_t i = 0; i < kRows; ++i) from[i] = scratch + i * pairs;
  for (int64_t r = 0; r < rows; r += kRows, panels += kRows * pairs) {
    for (int64_t i = 0; i < kRows; ++i) {
      auto* to = reinterpret_cast<int16_t*>(scratch + i * pairs);
      const int64_t n = r + i < rows ? k : 0;
      widen(x + (r + i) * row_stride, n, to);
      std::fill(to + n, to + 2 * pairs, int16_t{0});
    }
    interleave<kRows>(from, pairs, panels);
  }
}

void widen_simd(const int8_t* from, int64_t n, int16_t* to) { widen(from, n, to); }

void multiply_pairs_simd(const int32_t* x, const int32_t* w, int64_t rows, int64_t pairs, bool first, int32_t* tile,
                         int64_t stride) {
  multiply_tiles<PairLanes>(x, w, rows, pairs, first, tile, stride);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(pair_rows_simd);
HWY_EXPORT(pack_x_pairs_simd);
HWY_EXPORT(widen_simd);
HWY_EXPORT(multiply_pairs_simd);

namespace {

// Columns [0, k) of a row in pieces of kGroup bytes, `stride` bytes apart; what is missing in the last piece is zeros.
template <int64_t kGroup>
void spread(const int8_t* row, int64_t k, int64_t stride, int8_t* to) {
  int64_t c = 0;
  for (; c + kGroup <= k; c += kGroup, to += stride) std::memcpy(to, row + c, kGroup);
  if (c < k) {
    std::memset(to, 0, kGroup);
    std::memcpy(to, row + c, static_cast<size_t>(k - c));
  }
}

// [k / kGroup][kRows][kGroup]
template <int64_t kRows, int64_t kGroup>
void pack_x_groups(Element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k, float*,
                   void* panels) {
  const auto* from = static_cast<const int8_t*>(x) + first;
  const int64_t panel = kRows * round_up(k, kGroup);
  auto* to = static_cast<int8_t*>(panels);
  for (int64_t r = 0; r < round_up(rows, kRows); ++r) {
    int8_t* at = to + r / kRows * panel + r % kRows * kGroup;
    if (r < rows) {
      spread<kGroup>(from + r * row_stride, k, kRows * kGroup, at);
    } else {
      for (int64_t c = 0; c < k; c += kGroup, at += kRows * kGroup) std::memset(at, 0, kGroup);
    }
  }
}

void pack_w_groups(Element, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float*, void* panel) {
  for (int64_t c = 0; c < kPanelCols; ++c) {
    auto* to = static_cast<int8_t*>(panel) + 8 * c;
    if (c < rows) {
      spread<8>(static_cast<const int8_t*>(w) + offsets[c], k, 8 * kPanelCols, to);
    } else {
      for (int64_t i = 0; i < k; i += 8, to += 8 * kPanelCols) std::memset(to, 0, 8);
    }
  }
}
const void* take_w_groups(Element, const void* w, int64_t first, int64_t, void*) {
  return static_cast<const int8_t*>(w) + first;
}

// Any processor: panels of pairs in int16, [k / 2][rows or 16][2].
void pack_x_pairs(Element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k, float* scratch,
                  void* panels) {
  HWY_DYNAMIC_DISPATCH(pack_x_pairs_simd)
  (static_cast<const int8_t*>(x) + first, row_stride, rows, k, reinterpret_cast<int32_t*>(scratch),
   static_cast<int32_t*>(panels));
}

const void* take_w_pairs(Element, const void* w, int64_t first, int64_t k, void* panel) {
  constexpr int64_t kGroup = 8 * kPanelCols;
  const auto* from = static_cast<const int8_t*>(w) + first;
  alignas(64) float wide[kGroup / 2];  // pairs
  for (int64_t g = 0; g < divide_up(k, 8); ++g, from += kGroup) {
    HWY_DYNAMIC_DISPATCH(widen_simd)(from, kGroup, reinterpret_cast<int16_t*>(wide));
    groups_to_columns(wide, 1, static_cast<float*>(panel) + g * kGroup / 2);
  }
  return panel;
}

void pack_w_pairs(Element e, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
                  void* panel) {
  pack_w_groups(e, w, offsets, rows, k, nullptr, scratch);
  take_w_pairs(e, scratch, 0, k, panel);
}

void multiply_pairs(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                    int64_t stride) {
  HWY_DYNAMIC_DISPATCH(multiply_pairs_simd)
  (static_cast<const int32_t*>(x_panels), static_cast<const int32_t*>(w_panel), rows, round_up(k, 8) / 2, first,
   reinterpret_cast<int32_t*>(tile), stride);
}

#if defined(__x86_64__)
// As pack_x_groups, with x + 128 in u8; rows side by side, so that stores run through the panel once.
void pack_x_vnni(Element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k, float*,
                 void* panels) {
  constexpr uint64_t kFlip = 0x8080808080808080;
  auto* to = static_cast<uint8_t*>(panels);
  for (int64_t r = 0; r < rows; r += kAvx512Rows) {
    const int8_t* from[kAvx512Rows];  // of rows that are missing, any
    for (int64_t i = 0; i < kAvx512Rows; ++i)
      from[i] = static_cast<const int8_t*>(x) + first + std::min(r + i, rows - 1) * row_stride;
    const auto take = [&](int64_t c, size_t bytes) {
      for (int64_t i = 0; i < kAvx512Rows; ++i, to += 8) {
        uint64_t eight = 0;
        std::memcpy(&eight, from[i] + c, bytes);
        eight ^= kFlip;
        std::memcpy(to, &eight, 8);
      }
    };
    int64_t c = 0;
    for (; c + 8 <= k; c += 8) take(c, 8);
    if (c < k) take(c, static_cast<size_t>(k - c));
  }
}

void pad_and_pair(const int8_t* groups, int64_t k, int8_t* panel) {
  split_groups_avx512(groups, divide_up(k, 8), panel);
  const int64_t filled = round_up(k, 8);
  std::memset(panel + filled * kPanelCols, 0, static_cast<size_t>((round_up(k, 64) - filled) * kPanelCols));
}
void pack_w_tiles(Element e, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
                  void* panel) {
  pack_w_groups(e, w, offsets, rows, k, nullptr, scratch);
  pad_and_pair(reinterpret_cast<const int8_t*>(scratch), k, static_cast<int8_t*>(panel));
}
const void* take_w_tiles(Element, const void* w, int64_t first, int64_t k, void* panel) {
  pad_and_pair(static_cast<const int8_t*>(w) + first, k, static_cast<int8_t*>(panel));
  return panel;
}
#endif

std::vector<PanelProduct> find_products() {
  std::vector<PanelProduct> all;
  PanelProduct p{.layout = Layout::kPanels16x8, .depth = 8, .bytes = 1, .integer = true, .block_k = 1536};
  p.pack_w = pack_w_groups, p.take_w = take_w_groups;
#if defined(__aarch64__)
  if (cpu_features().neon_i8mm) {
    p.instruction = "SMMLA", p.rows = kNeonRows;
    p.pack_x = pack_x_groups<kNeonRows, 8>, p.multiply = multiply_int8_neon;
    all.push_back(p);
  }
#elif defined(__x86_64__)
  if (cpu_features().amx_int8) {
    PanelProduct tiles = p;
    tiles.instruction = "AMX TDPBSSD", tiles.rows = kAmxRows, tiles.depth = 64;
    tiles.pack_x = pack_x_groups<kAmxRows, 64>, tiles.pack_w = pack_w_tiles, tiles.take_w = take_w_tiles;
    tiles.multiply = multiply_int8_amx;
    all.push_back(tiles);
  }
  if (cpu_features().avx512_vnni) {
    p.instruction = "VPDPBUSD", p.rows = kAvx512Rows, p.pack_x = pack_x_vnni, p.multiply = multiply_int8_vnni;
    all.push_back(p);
  }
#endif
  p.instruction = "products in int16, sums in int32", p.rows = HWY_DYNAMIC_DISPATCH(pair_rows_simd)();
  p.bytes = sizeof(int16_t), p.block_k = 768;
  p.pack_x = pack_x_pairs, p.pack_w = pack_w_pairs, p.take_w = take_w_pairs, p.multiply = multiply_pairs;
  all.push_back(p);
  return all;
}

}  // namespace

std::span<const PanelProduct> int8_products() {
  static const std::vector<PanelProduct> kProducts = find_products();
  return kProducts;
}
const PanelProduct& int8_product() { return int8_products().front(); }

}  // namespace tessera
#endif
