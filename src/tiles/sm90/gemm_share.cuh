// SPDX-License-Identifier: Apache-2.0
// Slices of K meet (gemm.cuh, kSplit). The blocks of a cluster hold the sums of one tile over a slice of K each. Groups
// of 32 columns go to the blocks in turn, group g to block g mod split: each block sends the others its sums of their
// groups, thread by thread, and adds up what all have of its own, the first slice first.
#pragma once

#include <type_traits>

#include "archs/cuda/instructions.cuh"
#include "archs/planted_fault.h"
#include "tiles/sm90/gemm.cuh"

namespace tessera::sm90 {

// The block that finishes a group of columns, and which of its groups that is.
struct GroupTurn {
  int split, block = 0, round = 0;
  __device__ __forceinline__ void next() {
    if (++block == split) block = 0, ++round;
  }
};

// Where sums travel, over the stages, which nobody reads any more: what other blocks send, then what they are sent. 16
// bytes of each thread lie side by side, kWords of them are a group; the groups of one block follow those of another.
template <class Shape>
struct SumsPlace {
  static constexpr int kGroups = Shape::kCols / 32, kWords = Shape::kMma * 4, kGroupBytes = kWords * kWarpgroup * 16,
                       kMostSplit = most_split(Shape::kCols);
  // Of one other block, at most.
  TS_HOST_DEVICE static constexpr int block_bytes(int split) { return (kGroups + split - 1) / split * kGroupBytes; }
  // That block `rank` finishes.
  TS_HOST_DEVICE static constexpr int groups_of(int rank, int split) { return (kGroups - rank + split - 1) / split; }
  // Of block `other` among the others of block `rank`.
  TS_HOST_DEVICE static constexpr int number(int other, int rank) { return other < rank ? other : other - 1; }
  static constexpr int most_bytes() {
    int most = 0;
    for (int split = 2; split <= kMostSplit; ++split) {
      const int bytes = 2 * (split - 1) * block_bytes(split);
      most = bytes > most ? bytes : most;
    }
    return most;
  }
};

// Sums are four bytes, f32 or int32: they travel as they are.
template <class Sum>
__device__ __forceinline__ float4 four_sums(const Sum* d) {
  if constexpr (std::is_same_v<Sum, float>) {
    return {d[0], d[1], d[2], d[3]};
  } else {
    return {__int_as_float(d[0]), __int_as_float(d[1]), __int_as_float(d[2]), __int_as_float(d[3])};
  }
}
template <class Sum>
__device__ __forceinline__ Sum sum_of_word(float word) {
  if constexpr (std::is_same_v<Sum, float>) {
    return word;
  } else {
    return __float_as_int(word);
  }
}

// What all others will send; by one thread, once the barrier is there.
template <class Shape, class Memory>
__device__ __forceinline__ void expect_sums(const Memory& memory, int split) {
  using Place = SumsPlace<Shape>;
  arrive_expecting(memory.received(),
                   (split - 1) * Place::groups_of(static_cast<int>(rank_in_cluster()), split) * Place::kGroupBytes);
}

// Sends what other blocks finish and waits for what they send. Called by one warpgroup of every block of the cluster,
// whose other threads have ended or will; `end_sharing` before it ends.
template <class Shape, class Memory, class Sum>
__device__ __forceinline__ void share_sums(const Sum (&d)[Shape::kMma][Shape::kCols / 2], const Memory& memory,
                                           int split, int thread) {
  using Place = SumsPlace<Shape>;
  static_assert(Place::most_bytes() <= Memory::kStages * Memory::kStageBytes);
  constexpr int kOwn = 3;           // named barrier of the warpgroup
  arrive_cluster();                 // this block has read its stages
  asm volatile("" : "+r"(thread));  // as in finish: nothing below is made before the products
  const int rank = static_cast<int>(rank_in_cluster()), block_bytes = Place::block_bytes(split);
  const uint32_t inbox = memory.x(0), outbox = inbox + (split - 1) * block_bytes;
  sync_threads(kOwn, kWarpgroup);
  GroupTurn turn{split};
#pragma unroll
  for (int g = 0; g < Place::kGroups; ++g, turn.next()) {
    if (turn.block == rank) continue;
    const uint32_t to =
        outbox + Place::number(turn.block, rank) * block_bytes + turn.round * Place::kGroupBytes + thread * 16;
#pragma unroll
    for (int word = 0; word < Place::kWords; ++word)
      cuda::store_shared(to + word * (kWarpgroup * 16), four_sums(&d[word / 4][g * 16 + word % 4 * 4]));
  }
  fence_for_tma();
  sync_threads(kOwn, kWarpgroup);
  wait_cluster();  // all blocks have read theirs
  if (thread == 0) {
    for (int to = 0; to < split; ++to) {
      if (to == rank) continue;
      send_to_block(address_in(inbox + Place::number(rank, to) * block_bytes, to),
                    outbox + Place::number(to, rank) * block_bytes, Place::groups_of(to, split) * Place::kGroupBytes,
                    address_in(memory.received(), to));
    }
  }
  __syncwarp();
  wait(memory.received(), 0);
  __syncwarp();
  arrive_cluster();  // this block has what the others send
}
// A block's memory must last until others have received what it sends.
__device__ __forceinline__ void end_sharing() {
  __syncwarp();
  wait_cluster();
}

// The whole sums of 16 columns, the first slice's first. `turn`: of the group of 32 that they are in, this block's own.
template <class Shape, class Memory, class Sum>
__device__ __forceinline__ void whole_sums(Sum (&sums)[Shape::kMma][8], const Sum (&d)[Shape::kMma][Shape::kCols / 2],
                                           int four, const GroupTurn& turn, const Memory& memory, int thread) {
  using Place = SumsPlace<Shape>;
  const int rank = turn.block, block_bytes = Place::block_bytes(turn.split);
  const uint32_t place = memory.x(0) + thread * 16 + turn.round * Place::kGroupBytes;
#pragma unroll
  for (int i = 0; i < Shape::kMma * 2; ++i) {
    const int word = i / 2 * 4 + four % 2 * 2 + i % 2;
    float4 sent[Place::kMostSplit - 1];
#pragma unroll
    for (int from = 0; from < Place::kMostSplit - 1; ++from) {
      if (from + 1 < turn.split)
        sent[from] = cuda::load_shared_floats(place + from * block_bytes + word * (kWarpgroup * 16));
    }
    const float4 mine = four_sums(&d[i / 2][four * 8 + i % 2 * 4]);
#pragma unroll
    for (int s = 0; s < Place::kMostSplit; ++s) {
      if (s >= turn.split || (planted(Fault::kSliceMissing) && s + 1 == turn.split)) break;
      const int slice = planted(Fault::kSliceOrder) ? turn.split - 1 - s : s;
      const float4& words = slice == rank  ? mine
                            : slice < rank ? sent[slice < Place::kMostSplit - 1 ? slice : 0]
                                           : sent[slice > 0 ? slice - 1 : 0];
      const float each[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Sum& sum = sums[i / 2][i % 2 * 4 + j];
        sum = s == 0 ? sum_of_word<Sum>(each[j]) : sum + sum_of_word<Sum>(each[j]);
      }
    }
  }
}

}  // namespace tessera::sm90
