// SPDX-License-Identifier: Apache-2.0
// The multiplying warpgroups of short attention (short.cuh) and the kernel.
#pragma once

#include "tiles/sm90/short/short_load.cuh"
#include "tiles/sm90/short/short_store.cuh"

namespace tessera::sm90 {

// A tile of queries: scores, weights, and the last products with values begun. The first of those run under the
// exponentials of the other keys. `release`: the queries are not needed any more. `values`: waits for them, says where
// they are.
template <class F, class Release, class Values>
__device__ __forceinline__ void attend_at_once(const ShortParams& p, ShortRows<F>& rows, ShortSums<F>& sums, uint32_t q,
                                               uint32_t k, bool works, const Release& release, const Values& values) {
  constexpr int kGroups = ShortScores<F>::kGroups, kFirstGroups = ShortScores<F>::kFirstGroups, kCut = F::kSteps / 2;
  const bool few = p.keys <= F::kKeys - 16;  // keys may be missing anywhere
  uint32_t weights[F::kSteps][4];
  ShortScores<F> scores;
  scores.begin(q, k);
  float top[2];
  wait_products<1>();
  pin(scores.first);
  if (works) {
    if (few) scores.template hide<0, kFirstGroups>(p.keys);
    for (int h = 0; h < 2; ++h) top[h] = scores.template top<0, kFirstGroups>(h);
  }
  wait_products<0>();
  pin(scores.second);
  release();
  if (works) {
    if (few) scores.template hide<kFirstGroups, kGroups - 2>(p.keys);
    scores.template hide<kGroups - 2, kGroups>(p.keys);
    for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], scores.template top<kFirstGroups, kGroups>(h));
    rows.set_top(top);
    rows.template weigh_steps<0, kCut>(scores, weights);
  } else {
    rows.template skip_steps<0, kCut>(weights);
  }
  const uint32_t v = values();
  sums.template add_steps<0, kCut, true>(weights, v);
  if (works) {
    rows.template weigh_steps<kCut, F::kSteps>(scores, weights);
  } else {
    rows.template skip_steps<kCut, F::kSteps>(weights);
  }
  sums.template add_steps<kCut, F::kSteps, false>(weights, v);
}

// The same in halves of the keys. 8-bit weights are rounded against the greatest score of all: the first half's scores
// for their maximum, the second half's to be weighed against both, the first half's again, in the same registers.
// Contract: the first half is full.
template <class F, class Release, class Values>
__device__ __forceinline__ void attend_bytes_in_halves(const ShortParams& p, ShortRows<F>& rows, ShortSums<F>& sums,
                                                       uint32_t q, uint32_t k, bool works, const Release& release,
                                                       const Values& values) {
  using Low = PartScores<F, 0>;
  using High = PartScores<F, 1>;
  constexpr int kCut = F::kSteps / 2;
  float s[F::kFirstKeys / 2], top[2];
  uint32_t weights[F::kSteps][4];
  Low low{s};
  High high{s};
  low.begin(q, k);
  low.template end<0>();
  if (works) {
    for (int h = 0; h < 2; ++h) top[h] = top_score<Low::kFrom, Low::kTo>(low, h);
  }
  high.begin(q, k);
  high.template end<0>();
  if (works) {
    if (p.keys <= F::kKeys - 16) hide_scores<High::kFrom, High::kTo - 2>(high, p.keys);  // keys may be missing anywhere
    hide_scores<High::kTo - 2, High::kTo>(high, p.keys);
    for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], top_score<High::kFrom, High::kTo>(high, h));
    rows.set_top(top);
    rows.template weigh_steps<kCut, F::kSteps>(high, weights);
  } else {
    rows.template skip_steps<kCut, F::kSteps>(weights);
  }
  const uint32_t v = values();
  low.begin(q, k);
  sums.template add_steps<kCut, F::kSteps, true>(weights, v);
  low.template end<1>();
  release();
  if (works) {
    rows.template weigh_steps<0, kCut>(low, weights);
  } else {
    rows.template skip_steps<0, kCut>(weights);
  }
  sums.template add_steps<0, kCut, false>(weights, v);
}

// 16-bit weights are not rounded against anything: the second part's products run under the first one's exponentials,
// the first part's products with values under the second one's; a greater score in the second part scales what is
// there.
template <class F, class Release, class Values>
__device__ __forceinline__ void attend_in_parts(const ShortParams& p, ShortRows<F>& rows, ShortSums<F>& sums,
                                                uint32_t q, uint32_t k, bool works, const Release& release,
                                                const Values& values) {
  using Low = PartScores<F, 0>;
  using High = PartScores<F, 1>;
  constexpr int kCut = F::kFirstKeys / F::kStepKeys;
  const bool few = p.keys <= F::kKeys - 16;  // keys may be missing anywhere
  float first[F::kFirstKeys / 2], second[F::kSecondKeys / 2], top[2], by[2] = {1, 1};
  uint32_t weights[F::kSteps][4];
  Low low{first};
  High high{second};
  low.begin(q, k);
  low.template end<0>();
  if (works) {
    for (int h = 0; h < 2; ++h) top[h] = top_score<Low::kFrom, Low::kTo>(low, h);
    rows.set_top(top);
    rows.template weigh_steps<0, kCut / 2>(low, weights);
  } else {
    rows.template skip_steps<0, kCut / 2>(weights);
  }
  high.begin(q, k);  // not before: scores of both halves leave no registers
  if (works) {
    rows.template weigh_steps<kCut / 2, kCut>(low, weights);
  } else {
    rows.template skip_steps<kCut / 2, kCut>(weights);
  }
  high.template end<0>();
  release();
  const uint32_t v = values();
  sums.template add_steps<0, kCut, true>(weights, v);
  if (works) {
    if (few) hide_scores<High::kFrom, High::kTo - 2>(high, p.keys);
    hide_scores<High::kTo - 2, High::kTo>(high, p.keys);
    for (int h = 0; h < 2; ++h) top[h] = top_score<High::kFrom, High::kTo>(high, h);
    rows.raise_top(top, by);
  }
  wait_products<0>();  // now, not behind the exponentials: the first half's weights leave them their registers
  sums.pin_all();
  sums.scale(by);
  if (works) {
    rows.template weigh_steps<kCut, F::kSteps>(high, weights);
  } else {
    rows.template skip_steps<kCut, F::kSteps>(weights);
  }
  sums.template add_steps<kCut, F::kSteps, false>(weights, v);
}

template <class F>
__device__ void attend_visits(const ShortParams& p, const ShortMemory<F>& memory, int consumer) {
  const bool leader = threadIdx.x % 32 == 0;
  const int warp = threadIdx.x % kWarpgroup / 32;
  const uint32_t staging = memory.results(consumer * 4 + warp);
  // Absent keys have a score of minus infinity: a scale that underflows may not make NaN of it.
  const float scale_log2 = fmaxf(p.scale_log2 * cuda::scale_of(p.q_scale) * cuda::scale_of(p.k_scale), 0x1p-100f);
  const float factor = cuda::scale_of(p.v_scale) / cuda::scale_of(p.y_scale);
  uint32_t done = 0;  // tiles
  int t = consumer;   // the next one, from the visit's first on
  for (uint32_t count = 0; visit_of(count) < p.visits; ++count) {
    const int tiles = ShortVisit(p, visit_of(count)).tiles;
    const auto stage = [&] { return Place<F::kStages>(count); };
    wait(memory.keys_full(stage().at), stage().parity);
    for (; t < tiles; t += F::kConsumers, ++done) {
      const Place<F::kSlots / F::kConsumers> own(done);  // among the slots that are this warpgroup's
      const int slot = consumer + own.at * F::kConsumers;
      wait(memory.queries_full(slot), own.parity);
      cuda::forget(count);
      const ShortVisit at(p, visit_of(count));
      const int first_query = at.first_query(p, t, count) + warp * kWarpRows;  // of this warp
      const bool works = first_query >= (at.first_tile + t) * kQueryTile && first_query < p.queries;
      ShortRows<F> rows{.scale_log2 = scale_log2};
      ShortSums<F> sums;
      const uint32_t q = memory.queries(slot), k = memory.keys(stage().at);
      const auto release = [&] {
        if (leader) arrive(memory.queries_empty(slot));
      };
      const auto values = [&] {
        cuda::forget(count);
        wait(memory.values_ready(stage().at), stage().parity);
        return F::kBytes ? memory.transposed(stage().at) : memory.values(stage().at);
      };
      if constexpr (F::kHalves && !F::kBytes) {
        attend_in_parts<F>(p, rows, sums, q, k, works, release, values);
      } else if constexpr (F::kHalves) {
        attend_bytes_in_halves<F>(p, rows, sums, q, k, works, release, values);
      } else {
        attend_at_once<F>(p, rows, sums, q, k, works, release, values);
      }
      float factors[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) factors[h] = cuda::reciprocal_fast(cuda::sum_across_quad(rows.sum[h])) * factor;
      wait_products<0>();
      sums.pin_all();
      cuda::forget(count);
      if (works) write_rows<F>(p, sums, factors, staging, t, count);
    }
    t -= tiles;
    // Also where none of the tiles was this warpgroup's: no warpgroup may be a round ahead of the barrier.
    wait(memory.values_ready(stage().at), stage().parity);
    if (leader) arrive(memory.stage_empty(stage().at));
  }
}

template <class F>
__global__ void __launch_bounds__(F::kThreads, 1)
    attend_short(const __grid_constant__ ShortMaps maps, const __grid_constant__ ShortParams p) {
  extern __shared__ uint8_t shared[];
  cuda::let_next_kernel_start();
  const ShortMemory<F> memory{(cuda::shared_address(shared) + kSwizzleAtomBytes - 1) & ~(kSwizzleAtomBytes - 1)};
  const int warpgroup = threadIdx.x / kWarpgroup, consumers = blockDim.x / kWarpgroup - 1;
  if (threadIdx.x == 0) {
    for (int i = 0; i < F::kStages; ++i) {
      init_barrier(memory.keys_full(i), 1);
      init_barrier(memory.values_full(i), 1);
      if (F::kBytes) init_barrier(memory.values_ready(i), kTransposers);
      init_barrier(memory.stage_empty(i), 4 * consumers);
    }
    for (int i = 0; i < F::kSlots; ++i) {
      init_barrier(memory.queries_full(i), 1);
      init_barrier(memory.queries_empty(i), 4);
    }
    fence_barrier_init();
    prefetch(&maps.q);
    prefetch(&maps.k);
    prefetch(&maps.v);
  }
  __syncthreads();
  cuda::wait_for_earlier_kernels();
  if (warpgroup == 0) {
    give_registers<F::kLoaderRegisters>();
    if (threadIdx.x == 0) load_visits<F>(maps, p, memory);
    if constexpr (F::kBytes) {
      if (threadIdx.x >= 32) transpose_values<F>(p, memory);
    }
  } else {
    take_registers<F::kConsumerRegisters>();
    attend_visits<F>(p, memory, warpgroup - 1);
  }
}

}  // namespace tessera::sm90
