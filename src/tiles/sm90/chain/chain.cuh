// SPDX-License-Identifier: Apache-2.0
// A chain on Hopper: neighbouring kernels of few rows as phases of one persistent kernel. Between two kernels of a
// stream lie some microseconds in which nothing is computed: blocks end, the next ones begin, and the first loads are
// answered. Here blocks stay: a phase begins when all blocks have ended the one before, which a counter in device
// memory says, and weights, which no phase writes, are loaded as far ahead as shared memory has room, across phases.
//   warps 0 .. 3   products and programs: matmuls as the swapped mainloop (swapped.cuh), attention as few_attend.cuh
//   warp 4         loads weights, and the keys and values that no phase writes
//   warp 5         waits for the other blocks, then loads x
// Every SM has one block; neighbours share tiles, each with a slice of K (chain_shape.h), and their sums meet in the
// L2. (In clusters they met in shared memory, 0.3 us sooner; but an H200 has room for 15 clusters of eight, not for 16,
// and a phase of 16 tiles took two rounds, 4 us more.) All blocks must run at the same time. What a phase reads of what
// another one wrote comes from the L2 or by TMA: an SM's L1 may hold older numbers.
#pragma once

#include <cstring>

#include "base/buffer.h"
#include "tiles/sm90/chain/few_attend.cuh"
#include "tiles/sm90/swapped.cuh"

namespace tessera::sm90 {

constexpr int kChainThreads = 128 + 2 * 32;

enum class ChainKind : int { kPlain, kGated, kHeads, kAttention };

struct alignas(128) ChainPhase {
  CUtensorMap maps[3];  // x, w; or q, k, v
  ChainKind kind;
  Element element;      // of x; of q, k and v
  int tokens;           // rows of x in shared memory
  int x_chunks;         // matmul: pieces of 128 bytes of K that one box of x holds; 0: boxes are those of a matrix
  int units;            // tiles of 64 channels; heads of all batch items
  int split, k_blocks;  // matmul: blocks that share a tile; blocks of K
  SwappedParams matmul;
  FewParams attention;
};

// As Kernel::phase gives it.
inline Bytes chain_record(const ChainPhase& f) {
  Buffer buffer(sizeof(f));
  std::memcpy(buffer.data(), &f, sizeof(f));
  return Bytes::own(std::move(buffer));
}
static_assert(sizeof(ChainPhase) <= kChainRecordBytes);

struct ChainParams {
  const ChainPhase* phases;
  int count;
  uint32_t* arrived;  // zero before the kernel and after it
  uint8_t* meeting;   // where slices of a unit leave what the others need
  uint32_t* met;      // two sets of `units` counts of the slices that have: phases take turns. Zero before and after
  int units;
  ChainMemory memory;
};

// ---- memory that other SMs write

__device__ __forceinline__ void wait_for_blocks(const uint32_t* arrived, uint32_t count) {
  uint32_t seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
  } while (seen < count);
  asm volatile("fence.proxy.async.global;" ::
                   : "memory");  // what is loaded next, by TMA, was written by ordinary stores
  fence_for_tma();               // and goes where ordinary stores have been
}

// Contract: the block's threads have met since they wrote.
__device__ __forceinline__ void arrive_for_blocks(uint32_t* arrived) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
}
__device__ __forceinline__ uint32_t arrive_last(uint32_t* arrived) {
  uint32_t before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrived) : "memory");
  return before;
}

// The map was written by the host: a thread says so before it uses it.
__device__ __forceinline__ void acquire_map(const CUtensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
  prefetch(map);
}

// ---- the block

struct ChainBlock {
  const ChainParams& c;
  uint32_t base;
  uint8_t* bytes;

  __device__ ChainBlock(const ChainParams& params, uint8_t* shared)
      : c(params), base(cuda::shared_address(shared)), bytes(shared) {}

  __device__ uint32_t stage(int i) const { return base + i * kChainStageBytes; }
  __device__ uint32_t x() const { return base + c.memory.x; }
  __device__ uint32_t barrier(int i) const { return base + c.memory.barriers + i * 8; }
  // Two where who arrives may be a round ahead of a warp that waits.
  __device__ uint32_t recorded(int phase) const { return barrier(phase % 2); }  // the phase's record is here
  __device__ uint32_t ready() const { return barrier(2); }                      // the phases before this one have ended
  __device__ uint32_t x_full() const { return barrier(3); }
  __device__ uint32_t x_empty() const { return barrier(4); }  // attention: by the four warps
  __device__ uint32_t full(int stage) const { return barrier(8 + 2 * stage); }
  __device__ uint32_t empty(int stage) const { return barrier(9 + 2 * stage); }
  __device__ uint32_t numbers() const { return barrier(8 + 2 * kMostChainStages); }  // attention: tops and totals
  __device__ const ChainPhase& record(int phase) const {
    return *reinterpret_cast<const ChainPhase*>(bytes + c.memory.records + phase % 2 * kChainRecordBytes);
  }

  // Units of this block: first, first + step ...; blocks that are too few for one more unit have none.
  __device__ int slice(int split) const { return static_cast<int>(blockIdx.x) % split; }
  __device__ int unit_step(int split) const { return static_cast<int>(gridDim.x) / split; }
  __device__ int first_unit(const ChainPhase& f) const {
    const int unit = static_cast<int>(blockIdx.x) / f.split;
    return unit < unit_step(f.split) ? unit : f.units;
  }
  __device__ uint32_t* met(int phase) const { return c.met + (phase & 1) * c.units; }
};

__device__ __forceinline__ void init_chain_barriers(const ChainBlock& b) {
  for (int i = 0; i < 2; ++i) init_barrier(b.recorded(i), 1);
  init_barrier(b.ready(), 1);
  init_barrier(b.x_full(), 1);
  init_barrier(b.x_empty(), 4);
  for (int i = 0; i < b.c.memory.stages; ++i) {
    init_barrier(b.full(i), 1);
    init_barrier(b.empty(i), 4);
  }
  fence_barrier_init();
  fence_for_tma();
}

// A place in the ring; loaders and the warps that read keep one each.
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// ---- warp 4: one thread

template <class In>
__device__ __forceinline__ void load_tile(const ChainBlock& b, const ChainPhase& f, int tile, RingPlace& at) {
  constexpr int kBlockK = 128 / sizeof(In);
  const int channel = tile * kSwappedChannels, slice = b.slice(f.split);
  const WeightRows rows = f.kind == ChainKind::kGated   ? weight_rows<SwappedKind::kGated>(f.matmul, channel)
                          : f.kind == ChainKind::kHeads ? weight_rows<SwappedKind::kHeads>(f.matmul, channel)
                                                        : weight_rows<SwappedKind::kPlain>(f.matmul, channel);
  const int end = slice_begin(f.k_blocks, f.split, slice + 1), stages = b.c.memory.stages;
  const bool halves = f.kind != ChainKind::kPlain;
#pragma unroll 1
  for (int k = slice_begin(f.k_blocks, f.split, slice); k < end; ++k) {
    wait(b.empty(at.stage), at.parity ^ 1);
    arrive_expecting(b.full(at.stage), kChainStageBytes);
    load_box(b.stage(at.stage), &f.maps[1], k * kBlockK, rows.first, b.full(at.stage));
    if (halves)
      load_box(b.stage(at.stage) + kSwappedWBytes / 2, &f.maps[1], k * kBlockK, rows.second, b.full(at.stage));
    at.next(stages);
  }
}

__device__ __forceinline__ void load_slice(const ChainBlock& b, const ChainPhase& f, int phase, int unit,
                                           RingPlace& at) {
  const FewParams& p = f.attention;
  const int batch = unit / p.heads, head = (unit - batch * p.heads) / p.heads_per_kv;
  const ValidKeys<int> keys = p.valid(batch);
  const FewSlice slice = few_slice(keys.all, b.slice(f.split));
  bool waited = phase == 0;
  for (int tensor = 1; tensor <= 2; ++tensor) {
    for (int g = 0; g < slice.groups(); ++g) {
      const int first = slice.begin + g * kFewGroup;
      const bool written =
          p.written == FewWritten::kAll || (p.written == FewWritten::kFresh && first + kFewGroup > keys.old);
      if (written && !waited) {
        wait_for_blocks(b.c.arrived, phase * gridDim.x);
        waited = true;
      }
      for (int chunk = 0; chunk < p.head_size / 64; ++chunk) {
        wait(b.empty(at.stage), at.parity ^ 1);
        arrive_expecting(b.full(at.stage), kChainStageBytes);
        load_box(b.stage(at.stage), &f.maps[tensor], chunk * 64, head, first, batch, b.full(at.stage));
        at.next(b.c.memory.stages);
      }
    }
  }
}

template <class In>
__device__ __forceinline__ void load_ring(const ChainBlock& b) {
  RingPlace at;
#pragma unroll 1
  for (int phase = 0; phase < b.c.count; ++phase) {
    const ChainPhase& f = b.c.phases[phase];
    acquire_map(&f.maps[1]);
    if (f.kind == ChainKind::kAttention) acquire_map(&f.maps[2]);
    if (f.kind == ChainKind::kAttention) {
      for (int unit = b.first_unit(f); unit < f.units; unit += b.unit_step(f.split)) load_slice(b, f, phase, unit, at);
    } else {
      for (int tile = b.first_unit(f); tile < f.units; tile += b.unit_step(f.split)) load_tile<In>(b, f, tile, at);
    }
  }
}

// ---- warp 5

// Of attention: queries of one head, in tiles of 16.
__device__ __forceinline__ void load_queries_of(const ChainBlock& b, const ChainPhase& f, int unit) {
  const FewParams& p = f.attention;
  const int batch = unit / p.heads, head = unit - batch * p.heads, chunks = p.head_size / 64;
  const int tiles = (p.queries + kFewRows - 1) / kFewRows;
  arrive_expecting(b.x_full(), tiles * chunks * kFewRows * 128);
  for (int i = 0; i < tiles * chunks; ++i)
    load_box(b.x() + i * kFewRows * 128, &f.maps[0], i % chunks * 64, head, i / chunks * kFewRows, batch, b.x_full());
}

// The rows of x of this block's slice.
template <class In, int kTokens>
__device__ __forceinline__ void load_x(const ChainBlock& b, const ChainPhase& r, const CUtensorMap& map) {
  constexpr int kBlockK = 128 / sizeof(In);
  const int slice = b.slice(r.split), begin = slice_begin(r.k_blocks, r.split, slice),
            count = slice_begin(r.k_blocks, r.split, slice + 1) - begin;
  arrive_expecting(b.x_full(), count * kTokens * 128);
  if (r.x_chunks > 0) {
    for (int k = 0; k < count; k += r.x_chunks) load_box(b.x() + k * kTokens * 128, &map, 0, 0, begin + k, b.x_full());
  } else {
    for (int k = 0; k < count; ++k) load_box(b.x() + k * kTokens * 128, &map, (begin + k) * kBlockK, 0, b.x_full());
  }
}

template <class In, int kTokens>
__device__ __forceinline__ void watch_phases(const ChainBlock& b) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t emptied = 0;
#pragma unroll 1
  for (int phase = 0; phase < b.c.count; ++phase) {
    const uint4* from = reinterpret_cast<const uint4*>(b.c.phases + phase);
    const uint32_t to = b.base + b.c.memory.records + phase % 2 * kChainRecordBytes;
    for (int i = lane; i < static_cast<int>(sizeof(ChainPhase) / 16); i += 32)
      cuda::store_shared(to + i * 16, __ldg(from + i));
    __syncwarp();
    if (lane == 0) {
      const ChainPhase& f = b.c.phases[phase];
      arrive(b.recorded(phase));
      acquire_map(&f.maps[0]);
      if (phase > 0) wait_for_blocks(b.c.arrived, phase * gridDim.x);
      arrive(b.ready());
      const ChainPhase& r = b.record(phase);
      if (r.kind == ChainKind::kAttention) {
        const int first = b.first_unit(r);
        for (int unit = first; unit < r.units; unit += b.unit_step(r.split)) {
          if (unit != first) wait(b.x_empty(), emptied++ & 1);
          load_queries_of(b, f, unit);
        }
      } else if (b.first_unit(r) < r.units) {
        load_x<In, kTokens>(b, r, f.maps[0]);
      }
    }
    __syncwarp();
  }
}

// ---- warps 0 .. 3

constexpr int kChainBarrier = 1;  // named: the four warps
__device__ __forceinline__ void sync_chain() { sync_threads(kChainBarrier, 128); }

struct ChainCounts {
  RingPlace ring;
  uint32_t x = 0;  // waited for so often
};

__device__ __forceinline__ uint32_t full_stage(const ChainBlock& b, const RingPlace& at) {
  wait(b.full(at.stage), at.parity);
  return b.stage(at.stage);
}
__device__ __forceinline__ void leave_stage(const ChainBlock& b, int stage) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(b.empty(stage));
}

// All slices of the unit have left what this block reads next, by loads from the L2.
__device__ __forceinline__ void meet(uint32_t* met, uint32_t split) {
  sync_chain();
  if (threadIdx.x == 0) {
    arrive_for_blocks(met);
    uint32_t seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(met) : "memory");
    } while (seen < split);
  }
  sync_chain();
}

template <class In, int kTokens>
__device__ __forceinline__ void multiply_ring(const ChainBlock& b, int count, RingPlace& ring,
                                              SumOf<In> (&d)[kTokens / 2]) {
  const int stages = b.c.memory.stages;
  int stage = ring.stage, last = stage;
  uint32_t parity = ring.parity;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    wait(b.full(stage), parity);
    pin(d);
    begin_products();
    multiply_stage<In, kTokens>(d, b.stage(stage), b.x() + i * kTokens * 128, i > 0);
    commit_products();
    wait_products<1>();  // the stage before this one has been read
    if (i > 0) leave_stage(b, last);
    last = stage;
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  wait_products<0>();
  pin(d);
  leave_stage(b, last);
  ring = {stage, parity};
}

// Sums of the thread's channels of all slices, slice 0 first. kMostSplit: of that many pieces.
template <class Sum, int kTokens, int kPieces, int kMostSplit>
__device__ __forceinline__ void meet_slices(const ChainBlock& b, const ChainPhase& f, int phase, int tile, int row,
                                            const Sum (&d)[kTokens / 2], Sum (&v)[kPieces][8]) {
  const int split = f.split, rows = kTokens / split;
  if (split == 1) {
    leave_sums<Sum, kTokens>(d, reinterpret_cast<Sum*>(b.bytes + b.c.memory.sums));
    sync_chain();
    take_sums<Sum, kPieces, true>(b.bytes + b.c.memory.sums, row, rows, v);
    sync_chain();  // the next tile's sums may take their place
    return;
  }
  constexpr int kBytes = kTokens * kSumsRow * 4;  // of one slice
  uint8_t* all = b.c.meeting + int64_t{tile} * split * kBytes;
  const int slice = b.slice(split);
  leave_sums<Sum, kTokens>(d, reinterpret_cast<Sum*>(all + slice * kBytes));
  meet(b.met(phase) + tile, split);
#pragma unroll
  for (int s = 0; s < kMostSplit; ++s) {
    if (s >= split || (planted(Fault::kSliceMissing) && s > 0 && s == split - 1)) break;
    const uint8_t* from = all + s * kBytes + slice * rows * kSumsRow * 4;
    if (s == 0)
      take_sums<Sum, kPieces, true, true>(from, row, rows, v);
    else
      take_sums<Sum, kPieces, false, true>(from, row, rows, v);
  }
}

template <class In, SwappedKind kKind, int kTokens, int kPieces, int kMostSplit>
__device__ __forceinline__ void multiply_phase(const ChainBlock& b, const ChainPhase& f, int phase, ChainCounts& n) {
  using Sum = SumOf<In>;
  const SwappedParams& p = f.matmul;
  const int split = f.split, slice = b.slice(split), rows = kTokens / split;
  const int count = slice_begin(f.k_blocks, split, slice + 1) - slice_begin(f.k_blocks, split, slice);
  const int first = b.first_unit(f);
  if (first >= f.units) wait(b.ready(), phase & 1);
#pragma unroll 1
  for (int tile = first; tile < f.units; tile += b.unit_step(split)) {
    const SwappedPlace<kKind> at(p, tile * kSwappedChannels, slice * rows, rows);
    const auto columns = at.columns(p);
    if (tile == first) wait(b.ready(), phase & 1);
    const SwappedTokens<kKind, kPieces> tokens(p, at);
    if (tile == first) wait(b.x_full(), n.x++ & 1);
    Sum d[kTokens / 2];
    multiply_ring<In, kTokens>(b, count, n.ring, d);
    Sum v[kPieces][8];
    meet_slices<Sum, kTokens, kPieces, kMostSplit>(b, f, phase, tile, at.row, d, v);
    if (planted(Fault::kNoPhaseWait) && threadIdx.x >= 32) __nanosleep(20000);
    finish_tokens<Sum, kKind, kPieces>(p, at, columns, tokens, v);
  }
}

template <class In, SwappedKind kKind, int kTokens>
__device__ __forceinline__ void multiply_kind(const ChainBlock& b, const ChainPhase& f, int phase, ChainCounts& n) {
  if constexpr (kTokens == 64) {
    if (f.split == 1) return multiply_phase<In, kKind, 64, 4, 1>(b, f, phase, n);
    if (f.split == 2) return multiply_phase<In, kKind, 64, 2, 2>(b, f, phase, n);
  }
  multiply_phase<In, kKind, kTokens, 1, kMostChainSplit>(b, f, phase, n);
}

template <class Half, int kTokens>
__device__ __forceinline__ void attend_phase(const ChainBlock& b, const ChainPhase& f, int phase, ChainCounts& n) {
  constexpr int kTiles = kTokens / kFewRows;
  const FewParams& p = f.attention;
  const int tiles = (p.queries + kFewRows - 1) / kFewRows, sent = few_sent_bytes(p.head_size),
            slice_bytes = tiles * kFewSlices * sent, slice = b.slice(kFewSlices);
  const FewPlace place{b.x(), b.x() + kTokens * p.head_size * 2, b.numbers(), b.numbers() + 4 * kMostFewQueries * 4};
  wait(b.ready(), phase & 1);
#pragma unroll 1
  for (int unit = b.first_unit(f); unit < f.units; unit += b.unit_step(kFewSlices)) {
    FewAttention<Half, kTiles> a(p, place);
    const int batch = unit / p.heads, head = unit - batch * p.heads;
    a.keys = p.valid(batch);
    a.slice = few_slice(a.keys.all, slice);
    wait(b.x_full(), n.x++ & 1);
    const auto done = [&] {
      fence_for_tma();  // the stage was read by ordinary loads
      leave_stage(b, n.ring.stage);
      n.ring.next(b.c.memory.stages);
    };
    float s[kTiles][kFewGroups][2][4];
    a.score([&] { return full_stage(b, n.ring); }, done, s);
    a.weigh([&] { sync_chain(); }, s);
    a.multiply([&](bool) { return full_stage(b, n.ring); }, done);
    if (unit + b.unit_step(kFewSlices) < f.units) {  // the next head's queries may come
      fence_for_tma();
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(b.x_empty());
    }
    uint8_t* all = b.c.meeting + int64_t{unit} * kFewSlices * slice_bytes;
    for (int tile = 0; tile < tiles; ++tile) a.leave(all + slice * slice_bytes + tile * kFewSlices * sent, tile);
    meet(b.met(phase) + unit, kFewSlices);
    for (int tile = 0; tile < tiles; ++tile) {
      const auto from = [&](int of) { return all + of * slice_bytes + (tile * kFewSlices + slice) * sent; };
      a.template finish<true>(from, batch, head, tile, slice);
    }
  }
}

template <class In, class Half, int kTokens>
__device__ __forceinline__ void run_phases(const ChainBlock& b) {
  ChainCounts n;
#pragma unroll 1
  for (int phase = 0; phase < b.c.count; ++phase) {
    wait(b.recorded(phase), phase / 2 & 1);
    const ChainPhase& f = b.record(phase);
    switch (f.kind) {
      case ChainKind::kAttention:
        attend_phase<Half, kTokens>(b, f, phase, n);
        break;
      case ChainKind::kGated:
        multiply_kind<In, SwappedKind::kGated, kTokens>(b, f, phase, n);
        break;
      case ChainKind::kHeads:
        multiply_kind<In, SwappedKind::kHeads, kTokens>(b, f, phase, n);
        break;
      default:
        multiply_kind<In, SwappedKind::kPlain, kTokens>(b, f, phase, n);
        break;
    }
    if (!planted(Fault::kNoPhaseWait)) sync_chain();
    if (threadIdx.x == 0) {
      // All blocks have ended the phase before: nobody waits for its counts any more.
      for (int i = static_cast<int>(blockIdx.x); i < b.c.units; i += static_cast<int>(gridDim.x))
        b.met(phase + 1)[i] = 0;
      if (phase + 1 < b.c.count) {
        arrive_for_blocks(b.c.arrived);
      } else if (arrive_last(b.c.arrived) + 1 == static_cast<uint32_t>(b.c.count) * gridDim.x) {
        for (int i = 0; i < b.c.units; ++i) b.met(phase)[i] = 0;
        *b.c.arrived = 0;  // the last one of all
      }
    }
  }
}

template <class In, class Half, int kTokens>
__global__ void __launch_bounds__(kChainThreads, 1) run_chain(const __grid_constant__ ChainParams c) {
  extern __shared__ __align__(1024) uint8_t shared[];  // kSwizzleAtomBytes
  const ChainBlock b(c, shared);
  if (threadIdx.x == 128) init_chain_barriers(b);
  __syncthreads();
  cuda::wait_for_earlier_kernels();
  if (threadIdx.x >= 160) {
    watch_phases<In, kTokens>(b);
  } else if (threadIdx.x >= 128) {
    if (threadIdx.x == 128) load_ring<In>(b);
  } else {
    run_phases<In, Half, kTokens>(b);
  }
}

}  // namespace tessera::sm90
