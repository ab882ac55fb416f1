// SPDX-License-Identifier: Apache-2.0
// The loading warpgroup of short attention (short.cuh): one thread issues the TMA loads of keys, values and
// queries; three warps transpose 8-bit values.
#pragma once

#include "tiles/sm90/short/short.cuh"

namespace tessera::sm90 {

template <class F>
__device__ void load_visits(const ShortMaps& maps, const ShortParams& p, const ShortMemory<F>& memory) {
  uint32_t tile = 0;
  for (uint32_t count = 0; visit_of(count) < p.visits; ++count) {
    const ShortVisit at(p, visit_of(count));
    const Place<F::kStages> stage(count);
    const int kv_head = at.head / p.heads_per_kv;
    wait(memory.stage_empty(stage.at), stage.parity ^ 1);
    arrive_expecting(memory.keys_full(stage.at), F::kKeyBytes);
    for (int b = 0; b < F::kBlocks; ++b)
      load_box(memory.keys(stage.at) + b * F::kKeyBlock, &maps.k, b * F::kBlockChannels, kv_head, 0, at.batch,
               memory.keys_full(stage.at));
    for (int t = 0; t < at.tiles; ++t, ++tile) {
      const Place<F::kSlots> slot(tile);
      wait(memory.queries_empty(slot.at), slot.parity ^ 1);
      arrive_expecting(memory.queries_full(slot.at), F::kQueryBytes);
      for (int b = 0; b < F::kBlocks; ++b)
        load_box(memory.queries(slot.at) + b * F::kQueryBlock, &maps.q, b * F::kBlockChannels, at.head,
                 at.first_query(p, t, count), at.batch, memory.queries_full(slot.at));
      if (t > 0) continue;
      arrive_expecting(memory.values_full(stage.at), F::kValueBytes);
      for (int b = 0; b < F::kBlocks; ++b)
        load_box(memory.values(stage.at) + b * F::kValueBlock, &maps.v, b * F::kBlockChannels, kv_head, 0, at.batch,
                 memory.values_full(stage.at));
    }
  }
}

// Three warps: v of each stage, [token][channel], becomes [channel][token].
constexpr int kTransposers = 3;
template <class F>
__device__ void transpose_values(const ShortParams& p, const ShortMemory<F>& memory) {
  using Order = ChannelsInPairs;
  constexpr int kAcross = F::kHead / Order::kChannels,
                kTasks = F::kValueRows / Order::kTokens * kAcross;  // a task: one step of a warp
  constexpr int kGroups = 128 / Order::kTokens;                     // of a tile
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 1;
  const int source_token = Order::source_token(lane), source_chunk = Order::source_chunk(lane),
            target_row = Order::target_row(lane);
  for (uint32_t count = 0; visit_of(count) < p.visits; ++count) {
    const Place<F::kStages> stage(count);
    wait(memory.values_full(stage.at), stage.parity);
    const uint32_t from = memory.values(stage.at), to = memory.transposed(stage.at);
#pragma unroll 2
    for (int task = warp; task < kTasks; task += kTransposers) {
      const int group = task / kAcross, across = task % kAcross;
      transpose_bytes(from + swizzled_offset<F::kRowBytes>(group * Order::kTokens + source_token,
                                                           (across * (Order::kChannels / 16) + source_chunk) * 16),
                      to + group / kGroups * F::kTransposedTile +
                          swizzled_offset(across * Order::kChannels + target_row, group % kGroups * Order::kTokens),
                      Order::selector(lane, 0), Order::selector(lane, 1));
    }
    fence_for_tma();  // wgmma reads as TMA does
    __syncwarp();
    if (lane == 0) arrive(memory.values_ready(stage.at));
  }
}

}  // namespace tessera::sm90
