// SPDX-License-Identifier: Apache-2.0
// The loading warpgroup of streaming attention (stream.cuh): one thread issues the TMA loads of queries, keys and
// values, as far ahead as stages are free. In FP8 all four warps transpose each block of V: its tokens must lie along
// the rows (archs/sm90/transposed_bytes.h).
#pragma once

#include "tiles/sm90/stream.cuh"

namespace tessera::sm90 {

constexpr int kLoaderBarrier = 5;  // named: the warps that transpose V

template <class C>
__device__ __forceinline__ void load_queries(const StreamMaps& maps, const StreamParams& p, const StreamTile& t,
                                             uint32_t base, uint32_t barrier) {
  arrive_expecting(barrier, C::kRows / kGroupRows * C::kQueryBytes);
  for (int group = 0; group < C::kRows / kGroupRows; ++group) {
    for (int chunk = 0; chunk < C::kChunks; ++chunk) {
      load_box(base + C::kQueryAt + group * C::kQueryBytes + chunk * C::kQueryChunkBytes, &maps.q,
               chunk * C::kChunkColumns, 0, t.token + (group * kGroupRows >> p.pack_shift), t.head >> p.pack_shift,
               t.batch, barrier);
    }
  }
}

// The n-th block of keys, or of values, of one head.
template <class C>
__device__ __forceinline__ void load_keys(const StreamMaps& maps, uint32_t to, uint32_t barrier, int kv_head, int key,
                                          int batch) {
  arrive_expecting(barrier, C::kKeyBytes);
  for (int chunk = 0; chunk < C::kChunks; ++chunk)
    load_box(to + chunk * C::kKeyChunkBytes, &maps.k, chunk * C::kChunkColumns, kv_head, key, batch, barrier);
}
template <class C>
__device__ __forceinline__ void load_values(const StreamMaps& maps, uint32_t to, uint32_t barrier, int kv_head, int key,
                                            int batch) {
  arrive_expecting(barrier, C::kValueBytes);
  for (int chunk = 0; chunk < C::kValueChunks; ++chunk) {
    load_box(to + chunk * C::kValueChunkBytes, &maps.v, chunk * C::kValueChunkColumns, kv_head, key, batch, barrier);
  }
}

// Zeros in rows [first, last) of a block of values, by `threads` threads of which this is number `thread`. Behind the
// last valid key the memory may hold NaN, and 0 * NaN is NaN. A row's units of 16 bytes change places among themselves.
template <class C>
__device__ __forceinline__ void clear_values(uint32_t v, int first, int last, int thread, int threads) {
#pragma unroll 1
  for (int chunk = planted(Fault::kStaleValues) ? C::kValueChunks : 0; chunk < C::kValueChunks; ++chunk) {
#pragma unroll 1
    for (int at = first * C::kValueRowBytes + thread * 16; at < last * C::kValueRowBytes; at += threads * 16)
      cuda::store_shared(v + chunk * C::kValueChunkBytes + at, uint4{0, 0, 0, 0});
  }
}
// Valid keys of a block of them; kKeys where all are, or where those that are not are zeros already (TMA's, behind the
// last key that there is memory for).
template <class C>
__device__ __forceinline__ int valid_in_block(const StreamParams& p, int batch, int first_key) {
  return p.lengths == nullptr ? C::kKeys : min(C::kKeys, stream_keys(p, batch).all - first_key);
}

// 128 tokens x kHead channels become kHead rows of 128 tokens; each warp transposes 32 tokens.
template <class C>
__device__ __forceinline__ void transpose_values(uint32_t from, uint32_t to) {
  using Order = ChannelsInOrder;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t token = warp * Order::kTokens + Order::source_token(lane);
  const uint32_t target =
      to + swizzled_offset(Order::target_row(lane), warp * Order::kTokens + Order::target_place(lane));
  const uint32_t first = Order::selector(lane, 0), second = Order::selector(lane, 1);
#pragma unroll 4
  for (int group = 0; group < C::kHead / Order::kChannels; ++group) {
    const int byte = group * Order::kChannels;
    transpose_bytes(from + byte / C::kValueRowBytes * C::kValueChunkBytes +
                        swizzled_offset<C::kValueRowBytes>(token, byte % C::kValueRowBytes),
                    target + group * Order::kChannels * kSwizzleRowBytes, first, second);
  }
}

// Called by the whole warpgroup. Keys are asked for one block before the values that belong to them: they are needed
// that much earlier.
template <class C>
__device__ __forceinline__ void load_stream(const StreamMaps& maps, const StreamParams& p, uint32_t base,
                                            const StreamBarriers& barriers) {
  const bool loads = threadIdx.x == 0;
  if (!C::kFp8 && !loads) return;
  int last = -1, last_head = 0, last_key = 0, last_batch = 0;  // the block whose values come next
  const auto values = [&] {
    if (last < 0) return;
    const uint32_t at = base + C::kValueAt + last % kStreamStages * C::kValueBytes;
    wait(barriers.v_empty(last), stream_parity(last) ^ 1);
    if constexpr (C::kFp8) {
      wait(barriers.v_loaded(last), stream_parity(last));
      if (const int valid = valid_in_block<C>(p, last_batch, last_key); valid < C::kKeys) {  // each warp its own tokens
        const int begin = static_cast<int>(threadIdx.x) / 32 * ChannelsInOrder::kTokens;
        clear_values<C>(at, max(begin, valid), begin + ChannelsInOrder::kTokens, static_cast<int>(threadIdx.x) % 32,
                        32);
        __syncwarp();
      }
      transpose_values<C>(at, base + C::kTransposedAt + last % kStreamStages * C::kTransposedBytes);
      fence_for_tma();  // wgmma reads by the same road
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(barriers.v_full(last));
      sync_threads(kLoaderBarrier, kWarpgroup);  // all have read the block: the next but one may take its place
    } else {
      load_values<C>(maps, at, barriers.v_full(last), last_head, last_key, last_batch);
    }
  };
  for_stream_tiles<C>(p, [&](const StreamTile& t, int round, int first) {
    const int kv_head = t.head / p.heads_per_kv;
    // Split: slices take as many blocks in turn as they have warpgroups that multiply.
    const int skip = C::kSplit ? (p.slices - 1) * C::kConsumers : 0;
    for (int i = 0, block = stream_slice<C>(p) * C::kConsumers; block < t.blocks;
         ++i, block += i % C::kConsumers == 0 ? 1 + skip : 1) {
      const int n = first + i, key = (t.blocks - 1 - block) * C::kKeys;
      if (loads) {
        wait(barriers.k_empty(n), stream_parity(n) ^ 1);
        load_keys<C>(maps, base + C::kKeyAt + n % kStreamStages * C::kKeyBytes, barriers.k_full(n), kv_head, key,
                     t.batch);
        if (n == 0) load_queries<C>(maps, p, t, base, barriers.q_full());
        if constexpr (C::kFp8) {
          load_values<C>(maps, base + C::kValueAt + n % kStreamStages * C::kValueBytes, barriers.v_loaded(n), kv_head,
                         key, t.batch);
        }
      }
      if constexpr (C::kFp8) __syncwarp();
      values();
      if (i == 0 && n > 0 && loads) {  // after the last values of the tile before: they are waited for sooner
        wait(barriers.q_empty(), (round & 1) ^ 1);
        load_queries<C>(maps, p, t, base, barriers.q_full());
      }
      if constexpr (C::kFp8) __syncwarp();
      last = n, last_head = kv_head, last_key = key, last_batch = t.batch;
    }
  });
  values();
}

}  // namespace tessera::sm90
