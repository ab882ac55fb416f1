// SPDX-License-Identifier: Apache-2.0
// The multiplying warpgroups of streaming attention (stream.cuh) and the kernel. 16-bit operands: results of all
// key blocks are summed by the tensor cores (about 22 bits). FP8: their sums keep about 13 bits, so each block's
// product starts afresh and is added in f32, which the online softmax does anyway:  o = o * shrink + block.
#pragma once

#include "tiles/sm90/stream_load.cuh"
#include "tiles/sm90/stream_softmax.cuh"
#include "tiles/sm90/stream_store.cuh"

namespace tessera::sm90 {

constexpr int kClearBarrier = 3;  // named, one of each multiplying warpgroup

// Where this warpgroup stands.
template <class C>
struct StreamPlace {
  uint32_t base;
  StreamBarriers barriers;
  int consumer;  // 0 ... kConsumers - 1
  __device__ uint32_t queries() const { return base + C::kQueryAt + (C::kSplit ? 0 : consumer * C::kQueryBytes); }
  __device__ uint32_t keys(int n) const { return base + C::kKeyAt + n % kStreamStages * C::kKeyBytes; }
  __device__ uint32_t values(int n) const {
    return base + (C::kFp8 ? C::kTransposedAt + n % kStreamStages * C::kTransposedBytes
                           : C::kValueAt + n % kStreamStages * C::kValueBytes);
  }
  // The warp is done with what the barrier guards.
  __device__ void release(uint32_t barrier) const {
    if (threadIdx.x % 32 == 0) arrive(barrier);
  }
  // Taking turns: barrier 1 + i is where warpgroup i waits for the one before it.
  __device__ void wait_turn() const {
    if constexpr (C::kTurns) sync_threads(1 + consumer, 2 * kWarpgroup);
  }
  __device__ void give_turn() const {
    if constexpr (C::kTurns) signal_threads(1 + (consumer + 1 == C::kConsumers ? 0 : consumer + 1), 2 * kWarpgroup);
  }
};

// The first of the tile's blocks of keys, counted from the last, that this warpgroup takes.
template <class C>
__device__ __forceinline__ int own_block(const StreamParams& p, const StreamPlace<C>& at) {
  return C::kSplit ? stream_slice<C>(p) * C::kConsumers + at.consumer : 0;
}

template <class C>
__device__ __forceinline__ void multiply_keys(float (&s)[C::kKeys / 2], uint32_t q, uint32_t k) {
  const uint64_t a = operand_descriptor<C::kRowBytes>(q), b = operand_descriptor<C::kRowBytes>(k);
#pragma unroll
  for (int step = 0; step < C::kSteps; ++step) {
    const int chunk = step * 32 / C::kRowBytes, byte = step * 32 % C::kRowBytes;
    Products<typename C::Operand, C::kKeys>::shared(s, a + ((chunk * C::kQueryChunkBytes + byte) >> 4),
                                                    b + ((chunk * C::kKeyChunkBytes + byte) >> 4), step > 0);
  }
}

// Scores of the n-th block of keys, waited for.
template <class C>
__device__ __forceinline__ void score_block(const StreamPlace<C>& at, int n, float (&s)[C::kKeys / 2]) {
  wait(at.barriers.k_full(n), stream_parity(n));
  pin(s);
  begin_products();
  multiply_keys<C>(s, at.queries(), at.keys(n));
  commit_products();
  wait_products<0>();
  pin(s);
  at.release(at.barriers.k_empty(n));
}

// Values behind the last valid key become zeros, in the n-th block of the count. Both warpgroups clear a block that
// both read: each needs only its own threads' zeros, and zeros over zeros change nothing.
template <class C>
__device__ __forceinline__ void clear_last_values(const StreamParams& p, const StreamPlace<C>& at, const StreamTile& t,
                                                  int n) {
  const int valid = valid_in_block<C>(p, t.batch, (t.blocks - 1) * C::kKeys);
  if (valid >= C::kKeys) return;
  wait(at.barriers.v_full(n), stream_parity(n));
  clear_values<C>(at.values(n), valid, C::kKeys, static_cast<int>(threadIdx.x) % kWarpgroup, kWarpgroup);
  fence_for_tma();  // wgmma reads by the same road
  sync_threads(kClearBarrier + at.consumer, kWarpgroup);
}

// v with its rows along the keys: groups of eight keys are `stride` apart, chunks of columns `leading`.
template <class C>
__device__ __forceinline__ uint64_t values_descriptor(uint32_t v) {
  return (operand_descriptor<C::kValueRowBytes>(v) & ~(uint64_t{0x3fff} << 16)) |
         static_cast<uint64_t>(C::kValueChunkBytes >> 4) << 16;
}

// 16-bit: o += w * v. FP8: o = w * v, of kColumns channels from `channel` on.
template <class C, int kColumns>
__device__ __forceinline__ void multiply_values(float (&o)[kColumns / 2], const uint32_t (&w)[C::kKeys * C::kBytes / 8],
                                                uint32_t v, int channel = 0) {
  const uint64_t b = C::kFp8 ? operand_descriptor(v + channel * kSwizzleRowBytes) : values_descriptor<C>(v);
#pragma unroll
  for (int step = 0; step < C::kKeys * C::kBytes / 32; ++step) {
    const uint32_t a[4] = {w[4 * step], w[4 * step + 1], w[4 * step + 2], w[4 * step + 3]};
    if constexpr (C::kFp8) {
      Products<typename C::Operand, kColumns>::registers(o, a, b + step * kDescriptorStepK, step > 0);
    } else {
      Products<typename C::Operand, kColumns>::registers_by_rows(o, a, b + step * (16 * C::kValueRowBytes >> 4), 1);
    }
  }
}

// o = o * shrink + block, of the columns that `block` has, from o[first] on.
template <int kAll, int kCount>
__device__ __forceinline__ void add_block(float (&o)[kAll], const float (&block)[kCount], const float (&shrink)[2],
                                          int first = 0) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[first + i] = fmaf(o[first + i], shrink[i / 2 % 2], block[i]);
}

// One tile, overlapped: while the softmax of a block of keys runs, the tensor cores multiply its predecessor's weights
// with V and the other warpgroup's next scores. first: the tile's first block in the count of all that this thread
// block loads; this warpgroup takes every kStride-th of them, every `stride`-th of the tile's from `own` on.
template <class C>
__device__ __forceinline__ void attend_overlapped(const StreamParams& p, const StreamPlace<C>& at, const StreamTile& t,
                                                  int first, float (&o)[C::kHead / 2], StreamRows& r) {
  constexpr int kStride = C::kSplit ? C::kConsumers : 1;
  const int own = own_block(p, at), stride = C::kSplit ? kStride * p.slices : 1,
            row = result_row(threadIdx.x % kWarpgroup) + (C::kSplit ? 0 : at.consumer * kGroupRows);
  if (own >= t.blocks) {
    at.release(at.barriers.q_empty());
    return;
  }
  float s[C::kKeys / 2];
  uint32_t w[C::kKeys * C::kBytes / 8];
  int n = first + (C::kSplit ? at.consumer : 0);
  score_block(at, n, s);
  mask_scores<C>(p, t, row, (t.blocks - 1 - own) * C::kKeys, r.scale, s);
  soften<C, true>(p, s, r);
  pack_weights<C>(w, s);
  if constexpr (!C::kFp8) {  // FP8: the loading warpgroup does
    if (own == 0) clear_last_values(p, at, t, n);
  }

  // The next block's scores, this block's product with V. A masked block needs registers for its masks: it waits for
  // the product first.
  const auto advance = [&](int block, auto masked) {
    const int before = n;
    n += kStride;
    [[maybe_unused]] const float shrink[2] = {r.shrink[0], r.shrink[1]};
    [[maybe_unused]] float product[C::kFp8 ? C::kHead / 2 : 1];
    wait(at.barriers.k_full(n), stream_parity(n));
    at.wait_turn();
    pin(s);
    begin_products();
    multiply_keys<C>(s, at.queries(), at.keys(n));
    commit_products();
    wait(at.barriers.v_full(before), stream_parity(before));
    if constexpr (C::kFp8) pin(product);
    begin_products();
    if constexpr (C::kFp8) {
      multiply_values<C, C::kHead>(product, w, at.values(before));
    } else {
      multiply_values<C, C::kHead>(o, w, at.values(before));
    }
    commit_products();
    at.give_turn();
    const auto finish_product = [&] {
      wait_products<0>();
      pin(w);
      at.release(at.barriers.v_empty(before));
      if constexpr (C::kFp8) {
        pin(product);
        add_block(o, product, shrink);
      } else {
        pin(o);
      }
    };
    if constexpr (masked) {
      finish_product();
    } else {
      wait_products<1>();
    }
    pin(s);
    at.release(at.barriers.k_empty(n));
    if constexpr (masked) mask_scores<C>(p, t, row, block * C::kKeys, r.scale, s);
    soften<C, masked>(p, s, r);
    if constexpr (!masked) finish_product();
    if constexpr (!C::kFp8) {
#pragma unroll
      for (int i = 0; i < C::kHead / 2; ++i) o[i] *= r.shrink[i / 2 % 2];
    }
    pack_weights<C>(w, s);
  };
  int block = t.blocks - 1 - own - stride;
  for (; block >= t.whole && block >= 0; block -= stride) advance(block, std::true_type());
  for (; block >= 0; block -= stride) advance(block, std::false_type());
  at.release(at.barriers.q_empty());

  wait(at.barriers.v_full(n), stream_parity(n));
  if constexpr (C::kFp8) {
    float product[C::kHead / 2];
    pin(product);
    begin_products();
    multiply_values<C, C::kHead>(product, w, at.values(n));
    commit_products();
    wait_products<0>();
    pin(product);
    pin(w);
    add_block(o, product, r.shrink);
  } else {
    begin_products();
    multiply_values<C, C::kHead>(o, w, at.values(n));
    commit_products();
    wait_products<0>();
    pin(o);
    pin(w);
  }
  at.release(at.barriers.v_empty(n));
}

// One tile where registers hold only one block at a time: the warpgroups overlap with each other. The product with V
// comes in pieces of channels.
template <class C>
__device__ __forceinline__ void attend_in_pieces(const StreamParams& p, const StreamPlace<C>& at, const StreamTile& t,
                                                 int first, float (&o)[C::kHead / 2], StreamRows& r) {
  constexpr int kStride = C::kSplit ? C::kConsumers : 1,
                kPiece = C::kKeys;  // a piece takes the registers of the scores
  static_assert(C::kFp8 && C::kHead % kPiece == 0);
  const int stride = C::kSplit ? kStride * p.slices : 1,
            row = result_row(threadIdx.x % kWarpgroup) + (C::kSplit ? 0 : at.consumer * kGroupRows);
  int block = t.blocks - 1 - own_block(p, at), n = first + (C::kSplit ? at.consumer : 0);
  const auto advance = [&](auto masked) {
    uint32_t w[C::kKeys / 8];
    float s[C::kKeys / 2];  // then the pieces of the product
    score_block(at, n, s);
    if constexpr (masked) mask_scores<C>(p, t, row, block * C::kKeys, r.scale, s);
    soften<C, masked>(p, s, r);
    pack_weights<C>(w, s);
    const uint32_t v = at.values(n);
    wait(at.barriers.v_full(n), stream_parity(n));
#pragma unroll
    for (int channel = 0; channel < C::kHead; channel += kPiece) {
      pin(s);
      begin_products();
      multiply_values<C, kPiece>(s, w, v, channel);
      commit_products();
      wait_products<0>();
      pin(s);
      add_block(o, s, r.shrink, channel / 2);
    }
    pin(w);
    at.release(at.barriers.v_empty(n));
    n += kStride;
    block -= stride;
  };
  while (block >= 0 && block >= t.whole) advance(std::true_type());
  while (block >= 0) advance(std::false_type());
  at.release(at.barriers.q_empty());
}

template <class C>
__device__ __forceinline__ void attend_stream(const StreamParams& p, uint32_t base, const StreamBarriers& barriers,
                                              int consumer) {
  const StreamPlace<C> at{base, barriers, consumer};
  StreamRows r;
  r.scale = p.scale;
  if constexpr (C::kFp8) r.scale *= cuda::scale_of(p.q_scale) * cuda::scale_of(p.k_scale);
  r.score_scale = p.bias == nullptr ? r.scale : 1.0f;
  if (C::kTurns && consumer + 1 == C::kConsumers) at.give_turn();  // the first one may begin
  for_stream_tiles<C>(p, [&](const StreamTile& t, int round, int first) {
    float o[C::kHead / 2];
#pragma unroll
    for (int i = 0; i < C::kHead / 2; ++i) o[i] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) r.top[h] = -INFINITY, r.sum[h] = 0, r.shrink[h] = 0;
    // A slice without keys has no queries either.
    if (!C::kSplit || stream_slice<C>(p) * C::kConsumers < t.blocks) wait(barriers.q_full(), round & 1);
    if constexpr (C::kOverlap) {
      attend_overlapped<C>(p, at, t, first, o, r);
    } else {
      attend_in_pieces<C>(p, at, t, first, o, r);
    }
    if constexpr (C::kSplit) {
      consumer == 0 ? merge_and_store<C, 0>(p, t, base, barriers.received(), o, r)
                    : merge_and_store<C, 1>(p, t, base, barriers.received(), o, r);
    } else {
      store_stream_rows<C, 0, C::kHead>(p, t, consumer * kGroupRows, o, r);
    }
  });
  if (C::kTurns && consumer == 0) at.wait_turn();  // the last turn given is taken: no barrier is left half full
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    stream_attention(const __grid_constant__ StreamMaps maps, const __grid_constant__ StreamParams p) {
  extern __shared__ uint8_t shared[];
  __shared__ alignas(8) uint64_t barrier_words[StreamBarriers::kCount];
  const uint32_t base = (cuda::shared_address(shared) + kSwizzleAtomBytes - 1) & ~(kSwizzleAtomBytes - 1);
  const StreamBarriers barriers{cuda::shared_address(barrier_words)};
  cuda::let_next_kernel_start();
  if (threadIdx.x == 0) {
    prefetch(&maps.q);
    prefetch(&maps.k);
    prefetch(&maps.v);
    init_stream_barriers<C>(barriers);
  }
  __syncthreads();
  cuda::wait_for_earlier_kernels();
  const int warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    give_registers<C::kLoaderRegisters>();
    load_stream<C>(maps, p, base, barriers);
  } else {
    take_registers<C::kConsumerRegisters>();
    attend_stream<C>(p, base, barriers, warpgroup - 1);
  }
}

}  // namespace tessera::sm90
