// SPDX-License-Identifier: Apache-2.0
// int8 products: packing, the product for processors without matrix instructions, and the choice.
#include <algorithm>
#include <cstring>
#include <vector>

#include "archs/cpu/features.h"
#include "tiles/cpu/matrix_kernels.h"
#include "tiles/cpu/product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/int8.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// One row: pairs of products of 16-bit numbers are added to 32-bit lanes, four lanes per column of w; a vector holds
// kColumns columns.
void multiply_row_simd(const int16_t* x, const int8_t* w, int64_t groups, int32_t* out) {
  const hn::CappedTag<int16_t, 32> d16;
  const hn::RepartitionToWide<decltype(d16)> d32;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  constexpr int kColumns = hn::MaxLanes(d16) / 8;
  constexpr int kVectors = 16 / kColumns;
  alignas(64) int32_t sums[64];
  for (int v = 0; v < kVectors; ++v) {
    auto sum = hn::Zero(d32);
    for (int64_t g = 0; g < groups; ++g) {
      const auto a = hn::LoadDup128(d16, x + 8 * g);
      const auto b = hn::PromoteTo(d16, hn::LoadU(d8, w + (g * 16 + v * kColumns) * 8));
      sum = hn::Add(sum, hn::WidenMulPairwiseAdd(d32, a, b));
    }
    hn::StoreU(sum, d32, sums + v * kColumns * 4);
  }
  for (int c = 0; c < 16; ++c) out[c] = sums[4 * c] + sums[4 * c + 1] + sums[4 * c + 2] + sums[4 * c + 3];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(multiply_row_simd);

namespace {

// Any processor: x panel [rows][k / 8][8] in int16, w panel as stored.
constexpr int64_t kPlainRows = 4;
void multiply_plain(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                    int64_t stride) {
  const int64_t groups = divide_up(k, 8);
  const auto* x = static_cast<const int16_t*>(x_panels);
  for (int64_t r = 0; r < rows; ++r, x += 8 * groups) {
    int32_t sums[kPanelCols];
    HWY_DYNAMIC_DISPATCH(multiply_row_simd)(x, static_cast<const int8_t*>(w_panel), groups, sums);
    auto* to = reinterpret_cast<int32_t*>(tile + r * stride);
    for (int64_t c = 0; c < kPanelCols; ++c) to[c] = first ? sums[c] : to[c] + sums[c];
  }
}

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

void pack_x_plain(Element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k, float*,
                  void* panels) {
  auto* to = static_cast<int16_t*>(panels);
  for (int64_t r = 0; r < rows; ++r, to += round_up(k, 8)) {
    std::copy_n(static_cast<const int8_t*>(x) + first + r * row_stride, k, to);
    std::fill(to + k, to + round_up(k, 8), int16_t{0});
  }
}

#if defined(__x86_64__)
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
#endif
  p.instruction = "products in int16, sums in int32", p.rows = kPlainRows, p.bytes = sizeof(int16_t);
  p.pack_x = pack_x_plain, p.multiply = multiply_plain;
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
