// SPDX-License-Identifier: Apache-2.0
// The multiplying warpgroups of short attention (sm90_short.cuh) and the kernel.
#pragma once

#include "tiles/sm90_short_load.cuh"
#include "tiles/sm90_short_store.cuh"

namespace tessera::sm90 {

// The weights of all keys for a tile of queries; `release`: nobody needs the queries any more.
template <class F, class Release>
__device__ __forceinline__ void weigh_all(const ShortParams& p, ShortRows<F>& rows, uint32_t (&weights)[F::kSteps][4], uint32_t q, uint32_t k, bool works, const Release& release) {
  constexpr int kGroups = ShortScores<F>::kGroups, kFirstGroups = ShortScores<F>::kFirstGroups;
  const bool few = p.keys <= F::kKeys - 16;  // keys may be missing anywhere
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
    rows.set_top(top[0], top[1]);
    rows.template weigh_steps<0, F::kSteps>(scores, weights);
  } else {
    rows.template skip_steps<0, F::kSteps>(weights);
  }
}

// The same in halves: the first half's scores for their maximum, the second half's to be weighed against both, the first half's again. Contract: the first half is full.
template <class F, class Release>
__device__ __forceinline__ void weigh_halves(const ShortParams& p, ShortRows<F>& rows, uint32_t (&weights)[F::kSteps][4], uint32_t q, uint32_t k, bool works, const Release& release) {
  using Low = HalfScores<F, 0>;
  using High = HalfScores<F, 1>;
  float s[F::kFirstKeys / 2], top[2];
  Low low{s};
  High high{s};
  low.make(q, k);
  if (works) {
    for (int h = 0; h < 2; ++h) top[h] = top_score<Low::kFrom, Low::kTo>(low, h);
  }
  high.make(q, k);
  if (works) {
    if (p.keys <= F::kKeys - 16) hide_scores<High::kFrom, High::kTo - 2>(high, p.keys);  // keys may be missing anywhere
    hide_scores<High::kTo - 2, High::kTo>(high, p.keys);
    for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], top_score<High::kFrom, High::kTo>(high, h));
    rows.set_top(top[0], top[1]);
    rows.template weigh_steps<F::kSteps / 2, F::kSteps>(high, weights);
  }
  low.make(q, k);
  release();
  if (works) {
    rows.template weigh_steps<0, F::kSteps / 2>(low, weights);
  } else {
    rows.template skip_steps<0, F::kSteps>(weights);
  }
}

template <class F>
__device__ void attend_visits(const ShortMaps& maps, const ShortParams& p, const ShortMemory<F>& memory, int consumer, int consumers) {
  const bool leader = threadIdx.x % 32 == 0;
  const int warp = threadIdx.x % kWarpgroup / 32;
  const uint32_t staging = memory.results(consumer * 4 + warp);
  // Absent keys have a score of minus infinity: a scale that underflows may not make NaN of it.
  const float scale_log2 = fmaxf(p.scale_log2 * cuda::scale_of(p.q_scale) * cuda::scale_of(p.k_scale), 0x1p-100f);
  const float factor = cuda::scale_of(p.v_scale) / cuda::scale_of(p.y_scale);
  Ring<F::kStages> stage;
  Ring<F::kSlots> slot;
  int turn = 0, count = 0;
  for (int i = blockIdx.x; i < p.visits; i += gridDim.x, ++count, stage.step()) {
    const ShortVisit at(p, i);
    wait(memory.keys_full(stage.at), stage.parity);
    for (int t = 0; t < at.tiles; ++t, slot.step()) {
      const bool mine = turn == consumer;
      if (++turn == consumers) turn = 0;
      if (!mine) continue;
      wait(memory.queries_full(slot.at), slot.parity);
      const int first_query = at.first_query(p, t, count) + warp * kWarpRows;  // of this warp
      const bool works = first_query >= (at.first_tile + t) * kQueryTile && first_query < p.queries;
      ShortRows<F> rows{.scale_log2 = scale_log2};
      ShortSums<F> sums;
      uint32_t weights[F::kSteps][4];
      const auto release = [&] {
        if (leader) arrive(memory.queries_empty(slot.at));
      };
      if constexpr (F::kHalves) {
        weigh_halves<F>(p, rows, weights, memory.queries(slot.at), memory.keys(stage.at), works, release);
      } else {
        weigh_all<F>(p, rows, weights, memory.queries(slot.at), memory.keys(stage.at), works, release);
      }
      const uint32_t v = F::kBytes ? memory.transposed(stage.at) : memory.values(stage.at);
      wait(memory.values_ready(stage.at), stage.parity);
      sums.add_steps(weights, v);
      float factors[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) factors[h] = cuda::reciprocal_fast(cuda::sum_across_quad(rows.sum[h])) * factor;
      wait_products<0>();
      sums.pin_all();
      if (works) write_rows<F>(maps, p, sums, factors, staging, i, first_query);
    }
    // Also where none of the tiles was this warpgroup's: nobody may be a round ahead of the barrier.
    wait(memory.values_ready(stage.at), stage.parity);
    if (leader) arrive(memory.stage_empty(stage.at));
  }
  if (leader) wait_stores_read();
}

template <class F>
__global__ void __launch_bounds__(F::kThreads, 1) attend_short(const __grid_constant__ ShortMaps maps, const __grid_constant__ ShortParams p) {
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
    attend_visits<F>(maps, p, memory, warpgroup - 1, consumers);
  }
}

}  // namespace tessera::sm90
