// SPDX-License-Identifier: Apache-2.0
// Streaming attention on Hopper: what its parts agree on. A block takes a tile of 64 rows per warpgroup, keys and
// values stream past it in blocks of kKeys by TMA, and the softmax is the online one (fp32 maximum and sum
// of each row so far). Rows are queries; where several query heads share keys they are the heads of a query, then the
// next query.
//   warpgroup 0       loads; FP8: also transposes each block of V (archs/sm90/transposed_bytes.h)
//   warpgroups 1 ...  multiply: 64 rows each; or, `split`, the same 64 rows with blocks of keys in turn, merged at the
//                     end: more blocks for small problems. Several thread blocks, a cluster, may share the rows too.
// Key blocks are taken from the last to the first, so only the first ones (tail, causal) pay for masks. Where lengths
// lie on the device (tiles/valid_keys.h), blocks behind the last valid key are not loaded.
#pragma once

#include "archs/planted_fault.h"
#include "archs/sm90/chip.h"
#include "tiles/cuda/device_types.h"
#include "tiles/sm90/attention.cuh"
#include "tiles/sm90/tile_order.h"
#include "tiles/valid_keys.h"

namespace tessera::sm90 {

constexpr int kGroupRows = 64;  // of a warpgroup
constexpr int kStreamStages = 2;

struct StreamMaps {
  CUtensorMap q;     // [columns, heads that share keys and are rows, tokens, groups of such heads, batch]
  CUtensorMap k, v;  // [columns, heads, tokens, batch]
};

struct StreamParams {
  int queries, keys, heads, value_size;
  int heads_per_kv;
  int pack_shift;        // log2 of the heads that are rows of one tile
  int head_groups;       // heads >> pack_shift
  int row_tiles, tiles;  // per group of heads; in all
  int together;          // tile_order.h
  int slices;            // split: thread blocks that share a tile's rows, a cluster of them; a power of two
  bool causal;
  float scale;                               // of the scores: to units of log2 or, with a bias, to their own
  const float *q_scale, *k_scale, *v_scale;  // null: 1
  DeviceTensor y;
  const void* bias;  // null: none
  Element bias_element;
  int64_t bias_batch, bias_head, bias_query, bias_key;
  const int32_t* lengths;    // null: all keys are valid
  int length_stride, fresh;  // elements between batch items; new keys
};

// kHead: columns in shared memory and registers, at least head_size and value_size.
template <class OperandT, int kHeadT, int kKeysT, bool kSplitT>
struct StreamConfig {
  using Operand = OperandT;
  static constexpr int kHead = kHeadT, kKeys = kKeysT, kConsumers = 2;
  static constexpr bool kSplit = kSplitT, kFp8 = std::is_same_v<Operand, __nv_fp8_e4m3>;
  static constexpr int kBytes = kFp8 ? 1 : 2;
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr int kRows = kSplit ? kGroupRows : kConsumers * kGroupRows;  // of a tile
  // Of 65536 registers. The loading warpgroup of FP8 also transposes V.
  static constexpr int kLoaderRegisters = kFp8 ? 40 : 24;
  static constexpr int kConsumerRegisters = kFp8 ? 232 : 240;

  // q and k: chunks of 128 bytes of each row (short ones: 64), K-major; columns that do not exist are zeros.
  static constexpr int kRowBytes = kHead * kBytes <= 64 ? 64 : 128;
  static constexpr int kChunks = (kHead * kBytes + 127) / 128, kChunkColumns = kRowBytes / kBytes;
  static constexpr int kQueryChunkBytes = kGroupRows * kRowBytes,
                       kQueryBytes = kChunks * kQueryChunkBytes;  // of 64 rows
  static constexpr int kKeyChunkBytes = kKeys * kRowBytes, kKeyBytes = kChunks * kKeyChunkBytes;
  static constexpr int kSteps = kHead * kBytes / 32;  // products of 32 bytes along the columns
  // v: chunks of whole swizzled rows; 96 columns of 16 bits are three chunks of 64 bytes.
  static constexpr int kValueRowBytes = kFp8 ? kRowBytes : kHead % 64 == 0 ? 128 : 64;
  static constexpr int kValueChunks = (kHead * kBytes + kValueRowBytes - 1) / kValueRowBytes,
                       kValueChunkColumns = kValueRowBytes / kBytes;
  static constexpr int kValueChunkBytes = kKeys * kValueRowBytes, kValueBytes = kValueChunks * kValueChunkBytes;
  static constexpr int kTransposedBytes = kFp8 ? kHead * kKeys : 0;  // channels x keys
  static_assert(!kFp8 || kKeys == 128, "a transposed row is one swizzled row of 128 bytes");
  static_assert(kHead * kBytes % 32 == 0 && kKeyChunkBytes % kSwizzleAtomBytes == 0 &&
                kValueChunkBytes % kSwizzleAtomBytes == 0);

  // Shared memory, from the first multiple of 1024 bytes on.
  static constexpr int kQueryAt = 0, kKeyAt = kRows / kGroupRows * kQueryBytes,
                       kValueAt = kKeyAt + kStreamStages * kKeyBytes,
                       kTransposedAt = kValueAt + kStreamStages * kValueBytes;
  static constexpr int kSharedBytes = kTransposedAt + kStreamStages * kTransposedBytes + kSwizzleAtomBytes;
  static_assert(kSharedBytes + 256 <= sm90::kMostSharedBytes);

  // Scores of the next block are multiplied while this one's softmax runs, where registers suffice for two blocks.
  static constexpr bool kOverlap = !(kFp8 && kHead > 128);
  // The warpgroups take turns with the tensor cores: one multiplies while the other is at its softmax.
  static constexpr bool kTurns = kOverlap && !kSplit;
};

// ---- barriers

struct StreamBarriers {
  uint32_t base;
  static constexpr int kCount = 3 + 5 * kStreamStages;
  __device__ uint32_t q_full() const { return base; }
  __device__ uint32_t q_empty() const { return base + 8; }
  __device__ uint32_t k_full(int n) const { return base + 16 + n % kStreamStages * 8; }
  __device__ uint32_t k_empty(int n) const { return base + 16 + (kStreamStages + n % kStreamStages) * 8; }
  __device__ uint32_t v_full(int n) const { return base + 16 + (2 * kStreamStages + n % kStreamStages) * 8; }
  __device__ uint32_t v_empty(int n) const { return base + 16 + (3 * kStreamStages + n % kStreamStages) * 8; }
  __device__ uint32_t v_loaded(int n) const {
    return base + 16 + (4 * kStreamStages + n % kStreamStages) * 8;
  }                                                                                   // FP8: before it is transposed
  __device__ uint32_t received() const { return base + 16 + 5 * kStreamStages * 8; }  // what other slices send
};
// Parity of the n-th use of a ring of stages, to wait until it is full; the other one, until it is empty again.
__device__ __forceinline__ uint32_t stream_parity(int n) { return n / kStreamStages & 1; }

template <class C>
__device__ __forceinline__ void init_stream_barriers(const StreamBarriers& b) {
  constexpr int kReaders = 4 * (C::kSplit ? 1 : C::kConsumers);  // warps that read one block
  init_barrier(b.q_full(), 1);
  init_barrier(b.q_empty(), 4 * C::kConsumers);
  for (int i = 0; i < kStreamStages; ++i) {
    init_barrier(b.k_full(i), 1);
    init_barrier(b.k_empty(i), kReaders);
    init_barrier(b.v_full(i), C::kFp8 ? 4 : 1);  // FP8: the four warps that transposed it
    init_barrier(b.v_empty(i), kReaders);
    init_barrier(b.v_loaded(i), 1);
  }
  init_barrier(b.received(), 1);
  fence_barrier_init();
}

// ---- tiles

// The slice of a split tile that this thread block has.
template <class C>
__device__ __forceinline__ int stream_slice(const StreamParams& p) {
  return C::kSplit && p.slices > 1 ? static_cast<int>(rank_in_cluster()) : 0;
}

struct StreamTile {
  int batch, head, token;  // the first head and query
  int blocks;              // of keys that any row sees; one that is masked where there is none
  int whole;               // of them, from the first on: seen by every row, in full
};

// Read again where it is needed: kept, it would take registers that results need.
__device__ __forceinline__ ValidKeys<int> stream_keys(const StreamParams& p, int batch) {
  if (p.lengths == nullptr) return all_keys(p.keys);
  return valid_keys(p.lengths[planted(Fault::kLengthOfFirst) ? 0 : batch * p.length_stride], p.keys, p.fresh);
}

template <class C>
__device__ __forceinline__ StreamTile stream_tile(const StreamParams& p, int index) {
  const TilePlace at = place_tile(index, p.tiles / p.row_tiles, p.row_tiles, p.together);
  StreamTile t;
  t.batch = at.head / p.head_groups;
  t.head = (at.head - t.batch * p.head_groups) << p.pack_shift;
  t.token = at.row_tile * (C::kRows >> p.pack_shift);
  const int last = min(p.queries, t.token + (C::kRows >> p.pack_shift)) - 1;
  const ValidKeys<int> keys = stream_keys(p, t.batch);
  t.blocks = max(1, (keys.seen_by(last, p.queries, p.causal) + C::kKeys - 1) / C::kKeys);
  t.whole = p.bias != nullptr ? 0 : keys.seen_by(t.token, p.queries, p.causal) / C::kKeys;
  return t;
}

// Tiles of this block, one after another: fn(tile, how many before it, how many blocks of keys before it). Split tiles
// are small work: there is a block for each.
template <class C, class Fn>
__device__ __forceinline__ void for_stream_tiles(const StreamParams& p, Fn fn) {
  if constexpr (C::kSplit) {
    fn(stream_tile<C>(p, static_cast<int>(blockIdx.x) / p.slices), 0, 0);
  } else {
    for (int round = 0, first_block = 0; round * static_cast<int>(gridDim.x) < p.tiles; ++round) {
      const int index = tile_of_round(round, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
      if (index >= p.tiles) return;  // none in the last round
      const StreamTile t = stream_tile<C>(p, index);
      fn(t, round, first_block);
      first_block += t.blocks;
    }
  }
}

}  // namespace tessera::sm90
