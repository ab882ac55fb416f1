// SPDX-License-Identifier: Apache-2.0
// A chain's shared memory, and how its phases are divided over the blocks (chain.cuh). Host and device, constexpr:
// tested on the CPU.
//   ring      stages of 8 KB: 64 rows of a weight, or 64 keys, of 128 bytes each; loaded as far ahead as there is room
//   x         the rows of x of one phase; attention: queries, then weights
//   sums      of a tile that no slices share
//   records   of this phase and the next
//   barriers
#pragma once

#include <algorithm>
#include <cstdint>

#include "tiles/sm90/chain/few_keys.h"
#include "tiles/sm90/k_slices.h"
#include "tiles/sm90/swapped_shape.h"

namespace tessera::sm90 {

constexpr int kMostChainSplit = kFewSlices;  // blocks that share a unit
constexpr int kChainStageBytes = kSwappedWBytes;
constexpr int kChainRecordBytes = 1152;  // of a phase, room for two
constexpr int kMostChainStages = 24;
constexpr int chain_tokens(int64_t rows) { return rows <= 16 ? 16 : rows <= 64 ? 64 : 0; }  // 0: too many

// Attention: weights of the softmax, [query][key] of 16 bits; a gap of 16 bytes between rows keeps ldmatrix free of
// bank conflicts.
constexpr int kFewWeightsRow = (kFewGroups * kFewGroup + 8) * 2;
// What a slice sends another: its results of 16 queries in that one's share of the columns, and their top and sum.
TS_HOST_DEVICE constexpr int few_share(int head_size) { return head_size / kFewSlices; }
TS_HOST_DEVICE constexpr int few_sent_bytes(int head_size) { return kFewRows * (few_share(head_size) * 4 + 8); }
constexpr int kMostFewHead = 256;

struct ChainMemory {
  int stages = 0;
  int x = 0, sums = 0, records = 0, barriers = 0, bytes = 0;
};

// x_bytes: of the phase that needs most. No stages: it does not fit.
constexpr ChainMemory chain_memory(int tokens, int x_bytes, int most_bytes) {
  const int sums = (tokens * kSumsRow * 4 + 127) / 128 * 128;
  const int behind =
      (x_bytes + 1023) / 1024 * 1024 + sums + 2 * kChainRecordBytes + (8 + 2 * kMostChainStages) * 8 + 4 * 64 * 4 * 2;
  ChainMemory m;
  m.stages = std::min(kMostChainStages, (most_bytes - behind) / kChainStageBytes);
  if (m.stages < 0) m.stages = 0;
  m.x = m.stages * kChainStageBytes;
  m.sums = m.x + (x_bytes + 1023) / 1024 * 1024;
  m.records = m.sums + sums;
  m.barriers = m.records + 2 * kChainRecordBytes;
  m.bytes = m.stages * kChainStageBytes + behind;
  return m;
}

// Bytes of x in shared memory: a matmul's slice of K, or the queries and weights of attention.
constexpr int chain_x_bytes(int tokens, int k_blocks, int split) {
  return longest_slice(k_blocks, split) * tokens * 128;
}
constexpr int few_x_bytes(int tokens, int head_bytes) { return tokens * (head_bytes + kFewWeightsRow); }

// What the slices of a unit leave for each other in device memory.
constexpr int64_t meeting_bytes(int tokens, int split) {
  return split > 1 ? int64_t{split} * tokens * kSumsRow * 4 : 0;
}
constexpr int64_t few_meeting_bytes(int tiles, int head_size) {
  return int64_t{kFewSlices} * tiles * kFewSlices * few_sent_bytes(head_size);
}

// Attention of up to 16 queries by itself: eight blocks of a cluster, small enough to stand on an SM beside a block of
// the matmul before it. All keys of a slice and the first of its values are on their way at once; what a block sends
// lies where its keys were.
struct FewMemory {
  int stages = 10;
  int queries, weights, inbox, numbers, barriers, bytes;
};
constexpr FewMemory few_memory(int head_size) {
  FewMemory m{};
  m.queries = m.stages * kChainStageBytes;
  m.weights = m.queries + kFewRows * head_size * 2;
  m.inbox = m.weights + (kFewRows * kFewWeightsRow + 127) / 128 * 128;
  m.numbers = m.inbox + (kFewSlices - 1) * few_sent_bytes(head_size);
  m.barriers = m.numbers + 2 * 4 * kMostFewQueries * 4;
  m.bytes = m.barriers + (2 + 2 * m.stages) * 8;
  return m;
}

// Blocks that share a tile of 64 channels, a power of two: all of `blocks` work side by side on tiles, in as few
// rounds as there are; a round costs a block its stages, and what begins and ends it. Of a long slice the stages
// behind those that were loaded before the phase began arrive as fast as one SM loads.
constexpr int chain_split(int tiles, int k_blocks, int tokens, int blocks, int most_x_bytes) {
  constexpr int kThere = 16;
  int best = 0, best_cost = 0;
  for (int split = 1; split == 1 || (split <= kMostChainSplit && 2 * split <= k_blocks); split *= 2) {
    if (chain_x_bytes(tokens, k_blocks, split) > most_x_bytes) continue;
    const int at_once = std::max(blocks / split, 1), rounds = (tiles + at_once - 1) / at_once,
              slice = longest_slice(k_blocks, split);
    // Tens of nanoseconds, seen on an H200: a stage takes 5, a late one 10, a round 200, slices that meet 120.
    const int cost = rounds * (slice * 5 + std::max(0, rounds * slice - kThere) * 10 + 200 + (split > 1 ? 120 : 0));
    if (best == 0 || cost < best_cost) best = split, best_cost = cost;
  }
  return best;
}

}  // namespace tessera::sm90
