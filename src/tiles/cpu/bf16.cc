// SPDX-License-Identifier: Apache-2.0
// bf16 products: packing, which is plain copying of 8 bytes (4 columns) at a time, and the choice of instructions.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "archs/cpu/features.h"
#include "tiles/cpu/matrix_kernels.h"
#include "tiles/cpu/panels.h"
#include "tiles/cpu/rows.h"

namespace tessera {
namespace {

// A row of bf16 numbers where it lies, or decoded into `scratch`.
const uint16_t* bf16_row(Element element, const void* x, int64_t first, int64_t k, uint16_t* scratch) {
  if (element == Element::bf16) return static_cast<const uint16_t*>(x) + first;
  decode_row_bf16(element, x, first, k, scratch);
  return scratch;
}

// to[g * stride ...] = columns 4g ... 4g + 3 of the row; missing columns are zeros.
void spread_groups(const uint16_t* row, int64_t k, int64_t stride, uint16_t* to) {
  int64_t c = 0;
  for (; c + 4 <= k; c += 4, to += stride) std::memcpy(to, row + c, 8);
  if (c < k) {
    uint16_t last[4] = {};
    std::memcpy(last, row + c, static_cast<size_t>(k - c) * sizeof(uint16_t));
    std::memcpy(to, last, 8);
  }
}
void zero_groups(int64_t k, int64_t stride, uint16_t* to) {
  for (int64_t c = 0; c < k; c += 4, to += stride) std::memset(to, 0, 8);
}

// [k / 4][kRows][4]
template <int64_t kRows>
void pack_x_groups(Element element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                   float* scratch, void* panels) {
  auto* decoded = reinterpret_cast<uint16_t*>(scratch);
  auto* to = static_cast<uint16_t*>(panels);
  for (int64_t r = 0; r < rows; r += kRows, to += kRows * round_up(k, 4)) {
    // Rows side by side, so that stores run through the panel once.
    std::array<const uint16_t*, kRows> from;
    const int64_t count = std::min(kRows, rows - r);
    for (int64_t i = 0; i < count; ++i)
      from[static_cast<size_t>(i)] = bf16_row(element, x, first + (r + i) * row_stride, k, decoded + i * k);
    if (count == kRows) {
      uint16_t* at = to;
      for (int64_t c = 0; c + 4 <= k; c += 4) {
        for (size_t i = 0; i < kRows; ++i, at += 4) std::memcpy(at, from[i] + c, 8);
      }
      if (k % 4 != 0) {
        for (size_t i = 0; i < kRows; ++i) spread_groups(from[i] + k / 4 * 4, k % 4, 4, at + 4 * i);
      }
    } else {
      for (int64_t i = 0; i < kRows; ++i) {
        if (i < count) {
          spread_groups(from[static_cast<size_t>(i)], k, 4 * kRows, to + 4 * i);
        } else {
          zero_groups(k, 4 * kRows, to + 4 * i);
        }
      }
    }
  }
}

// Groups of 4 rows of v, interleaved: [rows][4] each, handed to `place` with the group's number. Missing rows of v are
// zeros.
template <class Place>
void transpose_groups(Element element, const void* v, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                      float* scratch, const Place& place) {
  auto* decoded = reinterpret_cast<uint16_t*>(scratch);  // 4 rows
  uint16_t* zeros = decoded + 4 * rows;
  uint16_t* group = zeros + rows;  // 4 rows interleaved
  std::fill_n(zeros, rows, uint16_t{0});
  for (int64_t g = 0; 4 * g < k; ++g) {
    const uint16_t* from[4];
    for (int64_t i = 0; i < 4; ++i)
      from[i] =
          4 * g + i < k ? bf16_row(element, v, first + (4 * g + i) * row_stride, rows, decoded + i * rows) : zeros;
    interleave_rows(from, rows, group);
    place(g, group);
  }
}

template <int64_t kRows>
void pack_x_transposed_groups(Element element, const void* v, int64_t row_stride, int64_t first, int64_t rows,
                              int64_t k, float* scratch, void* panels) {
  const int64_t groups = divide_up(k, 4);
  transpose_groups(element, v, row_stride, first, rows, k, scratch, [&](int64_t g, const uint16_t* group) {
    uint16_t* to = static_cast<uint16_t*>(panels) + g * 4 * kRows;
    int64_t r = 0;
    for (; r + kRows <= rows; r += kRows, to += groups * 4 * kRows) std::memcpy(to, group + 4 * r, 8 * kRows);
    if (r < rows) {
      std::memcpy(to, group + 4 * r, static_cast<size_t>(8 * (rows - r)));
      std::memset(to + 4 * (rows - r), 0, static_cast<size_t>(8 * (kRows - (rows - r))));
    }
  });
}

void pack_w_groups(Element element, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
                   void* panel) {
  auto* to = static_cast<uint16_t*>(panel);
  for (int64_t c = 0; c < kPanelCols; ++c, to += 4) {
    if (c < rows) {
      spread_groups(bf16_row(element, w, offsets[c], k, reinterpret_cast<uint16_t*>(scratch)), k, 4 * kPanelCols, to);
    } else {
      zero_groups(k, 4 * kPanelCols, to);
    }
  }
}

const void* take_w_groups(Element element, const void* w, int64_t first, int64_t k, void* panel) {
  if (element == Element::bf16) return static_cast<const uint16_t*>(w) + first;
  decode_row_bf16(element, w, first, kPanelCols * round_up(k, 4), static_cast<uint16_t*>(panel));
  return panel;
}

const void* round_w_groups(const float* s, int64_t k, void* panel) {
  auto* to = static_cast<uint16_t*>(panel);
  int64_t c = 0;
  for (; c + 4 <= k; c += 4) round_group(s + c * kPanelCols, to + c * kPanelCols);
  if (c < k) {
    float last[4 * kPanelCols] = {};
    std::copy(s + c * kPanelCols, s + k * kPanelCols, last);
    round_group(last, to + c * kPanelCols);
  }
  return panel;
}

// Without instructions for bf16 the panels are those of fp32_product.
const void* take_w_plain(Element element, const void* w, int64_t first, int64_t k, void* panel) {
  auto* to = static_cast<float*>(panel);
  constexpr int64_t kGroup = 4 * kPanelCols, kAtOnce = 8;
  float groups[kAtOnce * kGroup];
  for (int64_t g = 0; g < k / 4; g += kAtOnce) {
    const int64_t n = std::min(kAtOnce, k / 4 - g);
    decode_row(element, w, first + g * kGroup, n * kGroup, groups);
    groups_to_columns(groups, n, to + g * kGroup);
  }
  if (k % 4 != 0) {  // the panel ends with its last column
    float last[kGroup];
    decode_row(element, w, first + k / 4 * kGroup, kGroup, groups);
    groups_to_columns(groups, 1, last);
    std::copy_n(last, k % 4 * kPanelCols, to + k / 4 * kGroup);
  }
  return panel;
}
#if defined(__x86_64__)
// [k / 32][16][32]
void pack_x_tiles(Element element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                  float* scratch, void* panels) {
  auto* to = static_cast<uint16_t*>(panels);
  for (int64_t r = 0; r < round_up(rows, kAmxRows); ++r) {
    const uint16_t* from =
        r < rows ? bf16_row(element, x, first + r * row_stride, k, reinterpret_cast<uint16_t*>(scratch)) : nullptr;
    uint16_t* at = to + (r / kAmxRows * round_up(k, 32) * kAmxRows) + r % kAmxRows * 32;
    for (int64_t c = 0; c < k; c += 32, at += 32 * kAmxRows) {
      const int64_t n = from == nullptr ? 0 : std::min<int64_t>(32, k - c);
      if (n > 0) std::memcpy(at, from + c, static_cast<size_t>(n) * sizeof(uint16_t));
      if (n < 32) std::memset(at + n, 0, static_cast<size_t>(32 - n) * sizeof(uint16_t));
    }
  }
}

void pack_x_transposed_tiles(Element element, const void* v, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                             float* scratch, void* panels) {
  std::memset(panels, 0, static_cast<size_t>(round_up(rows, kAmxRows) * round_up(k, 32)) * sizeof(uint16_t));
  transpose_groups(element, v, row_stride, first, rows, k, scratch, [&](int64_t g, const uint16_t* group) {
    uint16_t* to = static_cast<uint16_t*>(panels) + g / 8 * 32 * kAmxRows + g % 8 * 4;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(to + r / kAmxRows * round_up(k, 32) * kAmxRows + r % kAmxRows * 32, group + 4 * r, 8);
  });
}

void pad_tiles(int64_t k, uint16_t* panel) {
  const int64_t filled = round_up(k, 4), all = round_up(k, 32);
  std::memset(panel + filled * kPanelCols, 0, static_cast<size_t>((all - filled) * kPanelCols) * sizeof(uint16_t));
}
// Both make groups of 4 first, a few at a time, and then pairs.
template <class Fill>
void pair_groups(int64_t k, uint16_t* panel, const Fill& fill) {
  constexpr int64_t kAtOnce = 64;
  uint16_t groups[kAtOnce * kPanelCols];
  for (int64_t c = 0; c < k; c += kAtOnce) {
    const int64_t n = std::min(kAtOnce, k - c);
    split_groups_avx512(fill(c, n, groups), divide_up(n, 4), panel + c * kPanelCols);
  }
  pad_tiles(k, panel);
}
void pack_w_tiles(Element element, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
                  void* panel) {
  pair_groups(k, static_cast<uint16_t*>(panel), [&](int64_t c, int64_t n, uint16_t* groups) -> const uint16_t* {
    int64_t from[kPanelCols];
    for (int64_t r = 0; r < rows; ++r) from[r] = offsets[r] + c;
    pack_w_groups(element, w, from, rows, n, scratch, groups);
    return groups;
  });
}
const void* round_w_tiles(const float* s, int64_t k, void* panel) {
  pair_groups(k, static_cast<uint16_t*>(panel), [&](int64_t c, int64_t n, uint16_t* groups) {
    return static_cast<const uint16_t*>(round_w_groups(s + c * kPanelCols, n, groups));
  });
  return panel;
}
const void* take_w_tiles(Element element, const void* w, int64_t first, int64_t k, void* panel) {
  pair_groups(k, static_cast<uint16_t*>(panel), [&](int64_t c, int64_t n, uint16_t* groups) {
    return static_cast<const uint16_t*>(take_w_groups(element, w, first + c * kPanelCols, n, groups));
  });
  return panel;
}
#endif

const void* round_w_plain(const float* s, int64_t k, void* panel) {
  auto* to = static_cast<float*>(panel);
  uint16_t rounded[4 * kPanelCols];
  for (int64_t c = 0; c < k; c += 4) {
    const int64_t n = kPanelCols * std::min<int64_t>(4, k - c);
    encode_row(Element::bf16, s + c * kPanelCols, n, 1.0f, rounded, 0);
    decode_row(Element::bf16, rounded, 0, n, to + c * kPanelCols);
  }
  return panel;
}

PanelProduct plain_product() {
  PanelProduct p = fp32_product();
  p.layout = Layout::kPanels16x4, p.take_w = take_w_plain, p.round_w = round_w_plain;
  return p;
}

std::vector<PanelProduct> find_products() {
  std::vector<PanelProduct> all;
  PanelProduct p{.layout = Layout::kPanels16x4, .depth = 4, .bytes = sizeof(uint16_t), .block_k = 768};
#if defined(__aarch64__)
  if (cpu_features().neon_bf16) {
    p.instruction = "BFMMLA", p.rows = kNeonRows;
    p.pack_x = pack_x_groups<kNeonRows>, p.pack_x_transposed = pack_x_transposed_groups<kNeonRows>;
    p.pack_w = pack_w_groups, p.take_w = take_w_groups, p.round_w = round_w_groups;
    p.multiply = multiply_bf16_neon;
    all.push_back(p);
  }
#elif defined(__x86_64__)
  if (cpu_features().amx_bf16) {
    p.instruction = "AMX TDPBF16PS", p.rows = kAmxRows, p.depth = 32;
    p.pack_x = pack_x_tiles, p.pack_x_transposed = pack_x_transposed_tiles;
    p.pack_w = pack_w_tiles, p.take_w = take_w_tiles, p.round_w = round_w_tiles, p.multiply = multiply_bf16_amx;
    all.push_back(p);
  }
  if (cpu_features().avx512_bf16) {
    p.instruction = "VDPBF16PS", p.rows = kAvx512Rows, p.depth = 4;
    p.pack_x = pack_x_groups<kAvx512Rows>, p.pack_x_transposed = pack_x_transposed_groups<kAvx512Rows>;
    p.pack_w = pack_w_groups, p.take_w = take_w_groups, p.round_w = round_w_groups;
    p.multiply = multiply_bf16_avx512;
    all.push_back(p);
  }
#endif
  all.push_back(plain_product());
  return all;
}

}  // namespace

std::span<const PanelProduct> bf16_products() {
  static const std::vector<PanelProduct> kProducts = find_products();
  return kProducts;
}

const PanelProduct& bf16_product() { return bf16_products().front(); }

}  // namespace tessera
