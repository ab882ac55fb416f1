// SPDX-License-Identifier: Apache-2.0
// Attention on Hopper where a head's keys fit in shared memory (at most 256): the kernel that the short variants of
// ops/attention instantiate.
//   y[i] = sum_j p_j v_j / sum_j p_j,  p_j = exp(scale * (q_i . k_j - max))
// With e4m3 operands p_j is rounded as 448 p_j; the sum below is that of unrounded ones (ops/attention/attention.h).
// A block walks over visits (a head and some tiles of 64 of its queries). One warp loads by TMA: keys and values into
// stages, tiles of queries into slots. Warpgroups take the tiles in turn, each at its own pace, so that one's products
// run under another's exponentials. A warpgroup holds all scores of its 64 queries in registers: the softmax is the
// plain one, with no running maximum. wgmma reads e4m3 only along k: three more warps write v transposed
// (archs/sm90/transposed_bytes.h). 16-bit operands lie in blocks of 64 channels (rows of 128 bytes), 8-bit ones in one
// block of rows of 64 or 128 bytes; channels and tokens that do not exist are loaded as 0.
#pragma once

#include "archs/sm90/chip.h"
#include "tiles/cuda/fast_divide.h"
#include "tiles/sm90/attention.cuh"

namespace tessera::sm90 {

constexpr int kQueryTile = 64, kWarpRows = 16;
// Of a block's shared memory, less what alignment and barriers take.
constexpr int kShortBytes = sm90::kMostSharedBytes - 2048;

enum class ShortResult : int { kF16, kBf16, kE4m3, kI8 };  // kI8: of 16-bit operands

struct ShortMaps {
  CUtensorMap q, k, v;  // boxes: 64 queries, kKeys keys, kValueRows values
};

struct ShortParams {
  int visits, visits_per_head, tiles_per_visit;
  int queries, keys;
  int last_tile;       // of a head's queries
  uint32_t last_idle;  // warps' shares of it that have none
  FastDivide per_head, heads;
  int heads_per_kv;
  float scale_log2;                                    // the problem's scale, times log2 e
  const float *q_scale, *k_scale, *v_scale, *y_scale;  // null: 1
  ShortResult result;
  bool backward;  // from the last visit to the first
  uint8_t* y;
  int64_t row_bytes;  // from a query to the next one
  int value_bytes;    // of one head
  bool whole_pieces;  // which are a multiple of 16, or else of 8
};

// One instantiation. kHead: channels of q, k and v, padded (64 or 128; 8-bit also 96). kKeys: keys held, a multiple
// of 16.
template <class Operand_, int kHead_, int kKeys_>
struct ShortForm {
  using Operand = Operand_;
  static constexpr int kHead = kHead_, kKeys = kKeys_;
  // Scores of more than 208 keys are made in halves, the first one twice, so that a third warpgroup has registers:
  // exponentials, not products, are what takes the time.
  static constexpr bool kHalves = kHead == 64 && kKeys > 208;
  // Warpgroups, as many as have registers for their scores.
  static constexpr int kConsumers = kKeys <= 208 || kHalves ? 3 : 2;
  static constexpr bool kBytes = sizeof(Operand) == 1;
  static_assert(kKeys % 16 == 0 && kKeys <= 256 && (kHead == 64 || kHead == 128 || (kBytes && kHead == 96)));

  static constexpr int kRowBytes = kBytes && kHead == 64 ? 64 : 128;
  static constexpr int kBlocks = kBytes ? 1 : kHead / 64,
                       kBlockChannels = kRowBytes / static_cast<int>(sizeof(Operand));
  static constexpr int kStepKeys = kBytes ? 32 : 16;  // of one product with v
  static constexpr int kSteps = (kKeys + kStepKeys - 1) / kStepKeys, kValueRows = kSteps * kStepKeys;
  // Scores are two results of about half the keys: one of more than 200 would not fit where a thread has 128 registers
  // before the loaders hand theirs over.
  static constexpr int kFirstKeys = kKeys / 64 * 32, kSecondKeys = kKeys - kFirstKeys;

  static constexpr int kQueryBlock = kQueryTile * kRowBytes, kKeyBlock = kKeys * kRowBytes,
                       kValueBlock = kValueRows * kRowBytes;
  static constexpr int kQueryBytes = kBlocks * kQueryBlock, kKeyBytes = kBlocks * kKeyBlock,
                       kValueBytes = kBlocks * kValueBlock;
  static constexpr int kTransposedTile = kHead * 128;  // 128 tokens of all channels
  static constexpr int kTransposedBytes = kBytes ? (kValueRows + 127) / 128 * kTransposedTile : 0;
  static constexpr int kStageBytes = kKeyBytes + kValueBytes + kTransposedBytes;
  static constexpr int kResultBlock = kWarpRows * 128;  // of a warp: 16 rows of 64 channels of 16 bits, or of 128 of 8
  static constexpr int kResultBytes = kResultBlock * ((kHead + 63) / 64);

  static constexpr int fitting_stages(int slots) {
    const int stages = (kShortBytes - slots * kQueryBytes - 4 * kConsumers * kResultBytes) / kStageBytes;
    return stages < 4 ? stages : 4;
  }
  // A multiple of the consumers: a slot is always the same one's, who therefore never waits for a phase of its barrier
  // while the phase before is still under way.
  static constexpr int kSlots =
      fitting_stages(2 * kConsumers) == fitting_stages(kConsumers) ? 2 * kConsumers : kConsumers;
  static constexpr int kStages = fitting_stages(kSlots);
  static_assert(kStages > 0);
  static constexpr int kResultsAt = kSlots * kQueryBytes, kBarriersAt = kResultsAt + 4 * kConsumers * kResultBytes,
                       kBarriers = 4 * kStages + 2 * kSlots;
  static constexpr int kStagesAt =
      (kBarriersAt + kBarriers * 8 + kSwizzleAtomBytes - 1) / kSwizzleAtomBytes * kSwizzleAtomBytes;
  static constexpr int kSharedBytes = kStagesAt + kStages * kStageBytes + kSwizzleAtomBytes;  // what a launch asks for
  // A quarter of a multiprocessor has 512 registers for each lane of its warps (two consumers: 504 of them): consumers
  // take most, the loader and the transposers the rest.
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr int kLoaderRegisters = kBytes ? 56 : kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? (kBytes ? 224 : 232) : kBytes ? 152 : 160;
  static_assert(kSharedBytes <= sm90::kMostSharedBytes && kResultsAt % kSwizzleAtomBytes == 0);
  static_assert(kKeyBlock % kSwizzleAtomBytes == 0 && kValueBlock % kSwizzleAtomBytes == 0 &&
                kQueryBlock % kSwizzleAtomBytes == 0);
};

// Where a block's memory lies and its barriers (shared addresses).
template <class F>
struct ShortMemory {
  uint32_t base;  // a multiple of 1024
  __device__ uint32_t keys(int stage) const { return base + F::kStagesAt + stage * F::kStageBytes; }
  __device__ uint32_t values(int stage) const { return keys(stage) + F::kKeyBytes; }
  __device__ uint32_t transposed(int stage) const { return values(stage) + F::kValueBytes; }
  __device__ uint32_t queries(int slot) const { return base + slot * F::kQueryBytes; }
  __device__ uint32_t results(int warp) const { return base + F::kResultsAt + warp * F::kResultBytes; }
  __device__ uint32_t keys_full(int stage) const { return barrier(stage); }
  __device__ uint32_t values_full(int stage) const { return barrier(F::kStages + stage); }
  __device__ uint32_t values_ready(int stage) const {
    return F::kBytes ? barrier(2 * F::kStages + stage) : values_full(stage);
  }
  __device__ uint32_t stage_empty(int stage) const { return barrier(3 * F::kStages + stage); }
  __device__ uint32_t queries_full(int slot) const { return barrier(4 * F::kStages + slot); }
  __device__ uint32_t queries_empty(int slot) const { return barrier(4 * F::kStages + F::kSlots + slot); }

 private:
  __device__ uint32_t barrier(int i) const { return base + F::kBarriersAt + i * 8; }
};

// The place of turn number `turn` in a ring of kCount, and how often the ring went round before, modulo 2.
template <int kCount>
struct Place {
  int at;
  uint32_t parity;
  __device__ explicit Place(uint32_t turn) : at(static_cast<int>(turn % kCount)), parity(turn / kCount % 2) {}
};

// The count-th visit of this block.
__device__ __forceinline__ int visit_of(uint32_t count) { return static_cast<int>(blockIdx.x + count * gridDim.x); }

struct ShortVisit {
  int batch, head, first_tile, tiles;
  __device__ ShortVisit(const ShortParams& p, int visit) {
    const int index = p.backward ? p.visits - 1 - visit : visit;
    const uint32_t bh = p.per_head.quotient(index);
    first_tile = (index - static_cast<int>(bh) * p.visits_per_head) * p.tiles_per_visit;
    tiles = min(p.tiles_per_visit, p.last_tile + 1 - first_tile);
    batch = p.heads.quotient(bh);
    head = bh - batch * p.heads.divisor;
  }
  // First query of tile t, the rows before it included: of a last tile with few queries not always the first warps
  // work, but those whose turn it is (`count`: of visits), so that the four quarters of a multiprocessor have the same
  // to do.
  __device__ int first_query(const ShortParams& p, int t, uint32_t count) const {
    const int tile = first_tile + t;
    return tile * kQueryTile - (tile == p.last_tile && count % 4 <= p.last_idle ? count % 4 * kWarpRows : 0);
  }
};

// How many of its tiles a visit to a head takes: all of them where there are heads enough, else fewer, so that more
// blocks share the work. A visit costs about as much as two tiles besides its own (its keys and values are loaded).
inline int choose_tiles_per_visit(int64_t heads, int64_t queries, int sms) {
  const int64_t tiles = (queries + kQueryTile - 1) / kQueryTile;
  int64_t best = 1, best_cost = INT64_MAX;
  for (int64_t take : {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{8}}) {
    const int64_t visits = heads * ((tiles + take - 1) / take);
    const int64_t cost = (visits + sms - 1) / sms * (2 + (take < tiles ? take : tiles));
    if (cost < best_cost) best = take, best_cost = cost;
  }
  return static_cast<int>(best);
}

}  // namespace tessera::sm90
