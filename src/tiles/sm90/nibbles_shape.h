// SPDX-License-Identifier: Apache-2.0
// How the swapped mainloop by 4-bit weights (nibbles.cuh) cuts a product of few rows into blocks, and what lies where
// in their shared memory. Host and device, constexpr: tested on the CPU. A block takes 64 channels per group, one or
// two groups of four warps, x `tokens` rows of x x a slice of K, in stages of 128 numbers of K. `split` blocks of a
// cluster hold the slices of one tile, as in the swapped mainloop (swapped_shape.h). Two groups read the same rows of
// x: with many tokens these are most of what a block loads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tiles/sm90/swapped_shape.h"
#include "types/nibble_tiles.h"

namespace tessera::sm90 {

constexpr int kNibbleTokens[] = {16, 32, 64};
constexpr int kNibbleScaleBytes = NibbleTiles::kRows * NibbleTiles::kCols / 16;  // of a tile: one scale per 16 numbers
constexpr int kNibbleTableBytes = 256 * 8;  // of 8-bit operands: for each scale the products of eight magnitudes

struct NibbleShape {
  int tokens = 16, groups = 1, split = 1;
  bool operator==(const NibbleShape&) const = default;
  constexpr int channels() const { return groups * kSwappedChannels; }
};

// What a stage holds: rows of x in boxes of 128 bytes, two tiles of codes and of scales per group.
TS_HOST_DEVICE constexpr int nibble_x_bytes(int tokens, int x_bits) { return tokens * NibbleTiles::kCols * x_bits / 8; }
constexpr int kNibbleCodeBytes = 2 * NibbleTiles::kTileBytes,
              kNibbleGroupBytes = kNibbleCodeBytes + 2 * kNibbleScaleBytes;
TS_HOST_DEVICE constexpr int nibble_stage_bytes(const NibbleShape& s, int x_bits) {
  return nibble_x_bytes(s.tokens, x_bits) + s.groups * kNibbleGroupBytes;
}

// x of all stages first, since boxes begin at multiples of 1024 bytes, then codes, then scales. Later the groups' sums
// lie there. Behind them what the other slices send, the table of products, barriers: one per group for what is sent,
// two per stage.
struct NibbleMemory {
  int stages = 1, codes = 0, scales = 0, body_bytes = 0, table = 0, barriers = 0, bytes = 0;
};
constexpr NibbleMemory nibble_memory(const NibbleShape& s, int x_bits, int k_blocks) {
  const int stage = nibble_stage_bytes(s, x_bits),
            received = s.groups * (s.split - 1) * sent_bytes({s.tokens, s.split}),
            table = x_bits == 8 ? kNibbleTableBytes : 0, sums = s.groups * s.tokens * kSumsRow * 4;
  NibbleMemory m;
  m.stages = std::min(longest_slice(k_blocks, s.split),
                      (kSwappedSharedLimit - received - table - s.groups * 8) / (stage + 16));
  m.codes = m.stages * nibble_x_bytes(s.tokens, x_bits);
  m.scales = m.codes + m.stages * s.groups * kNibbleCodeBytes;
  m.body_bytes = (std::max(m.stages * stage, sums) + 127) / 128 * 128;
  m.table = m.body_bytes + received;
  m.barriers = m.table + table;
  m.bytes = m.barriers + s.groups * 8 + m.stages * 16;
  return m;
}
constexpr bool is_legal(const NibbleShape& s, int k_blocks) {
  return s.split <= k_blocks && s.split <= 8 && s.split <= s.tokens;
}

// Nanoseconds on an H200, counted and not fitted: weights come from memory at 4000 bytes per ns, all that blocks load
// from the L2 at 5500. A stage of 64 channels keeps an SM's four schedulers busy for 80 ns while it is expanded (2.1
// instructions for a number of 16 bits) and its tensor cores for 1.1 or 2.2 per token; two blocks share an SM. build
// --tune measures.
constexpr double nibble_cost(const NibbleShape& s, int64_t m, int64_t n, int k_blocks, int x_bits, int sms) {
  const int64_t tiles_m = (m + s.tokens - 1) / s.tokens, tiles_n = (n + s.channels() - 1) / s.channels(),
                blocks = tiles_m * tiles_n * s.split, slice = longest_slice(k_blocks, s.split);
  const double weights = static_cast<double>(tiles_n * s.groups) * k_blocks * kNibbleGroupBytes,
               loaded = static_cast<double>(blocks * slice) * nibble_stage_bytes(s, x_bits);
  const double stage = s.groups * std::max(80.0, s.tokens * (x_bits == 8 ? 1.1 : 2.2)),
               on_an_sm = static_cast<double>((blocks + sms - 1) / sms * slice) * stage,
               alone = static_cast<double>(slice) * std::max(120.0, stage);  // one block's chain of stages
  return 2000 + std::max({weights / 4000, loaded / 5500, on_an_sm, alone}) + s.tokens * 8 +
         (s.split > 1 ? 400 + 130 * s.split : 0) + static_cast<double>(blocks) * 0.5;
}

// All shapes for a problem, the cheapest first: none whose tokens are more than half missing, slices at least two
// stages long where K is.
inline std::vector<NibbleShape> rank_nibble_shapes(int64_t m, int64_t n, int k_blocks, int x_bits, int sms) {
  std::vector<NibbleShape> shapes;
  for (const int tokens : kNibbleTokens) {
    for (int groups = 1; groups <= 2; ++groups) {
      for (int split = 1; split <= 8; split *= 2) {
        const NibbleShape shape{tokens, groups, split};
        if ((tokens == 16 || tokens / 2 < m) && (groups == 1 || n > kSwappedChannels) &&
            (split == 1 || k_blocks >= 2 * split) && is_legal(shape, k_blocks))
          shapes.push_back(shape);
      }
    }
  }
  const auto cost = [&](const NibbleShape& s) { return nibble_cost(s, m, n, k_blocks, x_bits, sms); };
  std::stable_sort(shapes.begin(), shapes.end(),
                   [&](const NibbleShape& a, const NibbleShape& b) { return cost(a) < cost(b); });
  return shapes;
}

}  // namespace tessera::sm90
