// SPDX-License-Identifier: Apache-2.0
// How the swapped mainloop (swapped.cuh) cuts a product of few rows into blocks, and where a block leaves its sums
// for the others. Host and device, constexpr: tested on the CPU.
// A block takes 64 channels x `tokens` rows of x x a slice of K. `split` blocks of a cluster hold the slices of one
// tile and finish tokens / split rows of it each. (Two tiles that load their rows of x together by multicast were
// always slower.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tiles/sm90/k_slices.h"
#include "types/small_float.h"

namespace tessera::sm90 {

constexpr int kSwappedChannels = 64;
constexpr int kSwappedTokens[] = {16, 32, 64, 112};
constexpr int kSwappedWBytes = kSwappedChannels * 128;  // of a stage: 128 bytes of K
// Two blocks on an SM: this kernel's, and the next kernel's, whose weights arrive meanwhile.
constexpr int kSwappedSharedLimit = 113 * 1024;

struct SwappedShape {
  int tokens = 16, split = 1;
  bool operator==(const SwappedShape&) const = default;
};

// Sums of a block in shared memory, [token][channel] of 32-bit words: even groups of four channels in the first half of
// a row, odd ones in the second, a gap of four words between. So the 32 numbers that a warp of the product writes at
// once (eight channels of every other token) and the 16-byte pieces that a quarter of a warp reads at once (one half of
// a row) touch all banks.
constexpr int kSumsRow = 68;
TS_HOST_DEVICE constexpr int sums_word(int token, int channel) {
  return token * kSumsRow + channel / 4 % 2 * 36 + channel / 8 * 4 + channel % 4;
}

constexpr int swapped_stage_bytes(int tokens) { return kSwappedWBytes + tokens * 128; }

// Sums that one block sends to another: those of the tokens that the other finishes. They lie side by side.
TS_HOST_DEVICE constexpr int sent_bytes(const SwappedShape& s) { return s.tokens / s.split * kSumsRow * 4; }

struct SwappedMemory {
  int stages = 1;
  int body_bytes = 0;  // stages, later this block's sums; behind them what the other slices send
  int barriers = 0;    // where they begin: one for what is sent, two per stage
  int bytes = 0;
};
constexpr SwappedMemory swapped_memory(const SwappedShape& s, int k_blocks) {
  const int stage = swapped_stage_bytes(s.tokens), received = (s.split - 1) * sent_bytes(s);
  SwappedMemory memory;
  memory.stages = std::min(longest_slice(k_blocks, s.split), (kSwappedSharedLimit - received - 8) / (stage + 16));
  memory.body_bytes = std::max(memory.stages * stage, (s.tokens * kSumsRow * 4 + 127) / 128 * 128);
  memory.barriers = memory.body_bytes + received;
  memory.bytes = memory.barriers + 8 + memory.stages * 16;
  return memory;
}
constexpr bool is_legal(const SwappedShape& s, int k_blocks) { return s.split <= k_blocks && s.split <= 8; }

// Nanoseconds on an H200 (132 SMs), fitted to 54 measurements (ViT-B's layers at one image and a few
// policies' shapes, in FP8, INT8 and 16 bits; 9 % rms): what all blocks read, the chain of stages in one block, the
// program, and slices of K that must meet. A stage takes as long as its products, or as its bytes on one SM's road from
// memory (some 200 bytes per ns): with 16 tokens the bytes count, and one block per 64 channels of a matrix that no
// cache holds is far slower than a cluster of them. Over the 68 problems of assets/tuning/h200.json the first shape is
// 7 % slower than the best one (at 120 bytes 10 %, without the bytes 11 %). build --tune measures.
constexpr int64_t swapped_cost(const SwappedShape& s, int64_t m, int64_t n, int k_blocks, int sms) {
  const int64_t blocks = ((n + kSwappedChannels - 1) / kSwappedChannels) * ((m + s.tokens - 1) / s.tokens) * s.split;
  const int64_t rounds = (blocks + sms - 1) / sms, slice = longest_slice(k_blocks, s.split);
  const int64_t stage_bytes = swapped_stage_bytes(s.tokens), read_bytes = blocks * slice * stage_bytes;
  return 1983 + read_bytes * 112 / 1000000 + slice * std::max<int64_t>(s.tokens * 175, stage_bytes * 100 / 200) / 100 +
         rounds * s.tokens * 8 + (s.split > 1 ? 392 + s.split * 127 : 127);
}

// All shapes for a problem, the cheapest first: none whose tiles are more than half empty, slices at least two blocks
// of K long (a single one where K is no longer).
inline std::vector<SwappedShape> rank_swapped_shapes(int64_t m, int64_t n, int k_blocks, int sms) {
  std::vector<SwappedShape> shapes;
  for (const int tokens : kSwappedTokens) {
    for (int split = 1; split <= 8; split *= 2) {
      const SwappedShape shape{tokens, split};
      if ((tokens == 16 || tokens / 2 < m) && (split == 1 || k_blocks >= 2 * split) && is_legal(shape, k_blocks))
        shapes.push_back(shape);
    }
  }
  const auto cost = [&](const SwappedShape& s) { return swapped_cost(s, m, n, k_blocks, sms); };
  std::stable_sort(shapes.begin(), shapes.end(),
                   [&](const SwappedShape& a, const SwappedShape& b) { return cost(a) < cost(b); });
  return shapes;
}

}  // namespace tessera::sm90
