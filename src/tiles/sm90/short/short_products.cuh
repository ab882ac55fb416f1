// SPDX-License-Identifier: Apache-2.0
// What a thread of short attention (short.cuh) holds in registers of its 64 queries, and the products that fill
// it: scores of all keys, the weights made of them, sums of values.
#pragma once

#include "archs/planted_fault.h"
#include "tiles/sm90/short/short.cuh"

namespace tessera::sm90 {

// Begins the products of 64 queries with kCount * 2 keys from k on.
template <class F, int kCount>
__device__ __forceinline__ void begin_scores(float (&s)[kCount], uint32_t q, uint32_t k) {
  const uint64_t q_desc = operand_descriptor<F::kRowBytes>(q), k_desc = operand_descriptor<F::kRowBytes>(k);
  constexpr int kStepsPerBlock = F::kRowBytes / 32;
#pragma unroll
  for (int step = 0; step < F::kHead * static_cast<int>(sizeof(typename F::Operand)) / 32; ++step) {
    const int block = step / kStepsPerBlock, inside = step % kStepsPerBlock;
    Products<typename F::Operand, kCount * 2>::shared(
        s, q_desc + (block * F::kQueryBlock >> 4) + inside * kDescriptorStepK,
        k_desc + (block * F::kKeyBlock >> 4) + inside * kDescriptorStepK, step > 0);
  }
  commit_products();
}

// Keys from group kFrom to kTo that do not exist were loaded as zeros: out they go.
template <int kFrom, int kTo, class Scores>
__device__ __forceinline__ void hide_scores(Scores& s, int keys) {
  const int left = keys + planted(Fault::kLastKey) - result_col(threadIdx.x);
#pragma unroll
  for (int j = kFrom; j < kTo; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (j * 8 + i >= left) s.at(j, 0, i) = s.at(j, 1, i) = -INFINITY;
    }
  }
}

template <int kFrom, int kTo, class Scores>
__device__ __forceinline__ float top_score(Scores& s, int h) {
  float a = fmaxf(s.at(kFrom, h, 0), s.at(kFrom, h, 1)), b = fmaxf(s.at(kFrom + 1, h, 0), s.at(kFrom + 1, h, 1));
#pragma unroll
  for (int j = kFrom + 2; j < kTo; j += 2) {
    a = fmaxf(a, fmaxf(s.at(j, h, 0), s.at(j, h, 1)));
    b = fmaxf(b, fmaxf(s.at(j + 1, h, 0), s.at(j + 1, h, 1)));
  }
  return fmaxf(a, b);
}

// A thread's scores of 64 queries: rows r and r + 8 of its warp (h = 0 and 1), of each group j of eight keys two
// neighbours.
template <class F>
struct ShortScores {
  static constexpr int kGroups = F::kKeys / 8, kFirstGroups = F::kFirstKeys / 8;
  float first[F::kFirstKeys / 2], second[F::kSecondKeys / 2];

  __device__ __forceinline__ float& at(int j, int h, int i) {
    return j < kFirstGroups ? first[j * 4 + h * 2 + i] : second[(j - kFirstGroups) * 4 + h * 2 + i];
  }

  // Two groups of products, first and second.
  __device__ __forceinline__ void begin(uint32_t q, uint32_t k) {
    pin(first);
    pin(second);
    begin_products();
    begin_scores<F>(first, q, k);
    begin_scores<F>(second, q, k + F::kFirstKeys * F::kRowBytes);
  }

  template <int kFrom, int kTo>
  __device__ __forceinline__ void hide(int keys) {
    hide_scores<kFrom, kTo>(*this, keys);
  }
  template <int kFrom, int kTo>
  __device__ __forceinline__ float top(int h) {
    return top_score<kFrom, kTo>(*this, h);
  }
};

// The same of the first part of the keys or the second, kPart 0 or 1; groups are numbered as if all were there.
template <class F, int kPart>
struct PartScores {
  static constexpr int kFrom = kPart * F::kFirstKeys / 8, kTo = kPart == 0 ? F::kFirstKeys / 8 : F::kKeys / 8;
  float (&s)[(kTo - kFrom) * 4];

  __device__ __forceinline__ float& at(int j, int h, int i) { return s[(j - kFrom) * 4 + h * 2 + i]; }
  __device__ __forceinline__ void begin(uint32_t q, uint32_t k) {
    pin(s);
    begin_products();
    begin_scores<F>(s, q, k + kPart * F::kFirstKeys * F::kRowBytes);
  }
  // kLeft: groups of products begun since that may go on.
  template <int kLeft>
  __device__ __forceinline__ void end() {
    wait_products<kLeft>();
    pin(s);
  }
};

// The softmax of a thread's two rows: weights 2^(score * scale_log2 + offset), and their sum.
template <class F>
struct ShortRows {
  float scale_log2;
  float offset[2], sum[2] = {0, 0};

  // `top`: of this thread's scores.
  __device__ __forceinline__ void set_top(const float (&top)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      offset[h] = fmaf(-cuda::max_across_quad(top[h]), scale_log2, F::kBytes ? kLog2Of448 : 0.0f);
  }
  // More scores, not weighed yet. by: what the weights so far must be multiplied with.
  __device__ __forceinline__ void raise_top(const float (&top)[2], float (&by)[2]) {
    const float before[2] = {offset[0], offset[1]};
    set_top(top);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      offset[h] = fminf(offset[h], before[h]);
      by[h] = cuda::exp2_fast(offset[h] - before[h]);
      sum[h] *= by[h];
    }
  }

  // Operands A of products with v, from step kFrom to kTo.
  template <int kFrom, int kTo, class Scores>
  __device__ __forceinline__ void weigh_steps(Scores& s, uint32_t (&weights)[F::kSteps][4]) {
#pragma unroll
    for (int step = kFrom; step < kTo; ++step) weigh_step(s, step, weights[step]);
  }
  // Rows that do not exist. (Plain zeros would be set before the branch, where they take registers from the scores.)
  template <int kFrom, int kTo>
  __device__ __forceinline__ void skip_steps(uint32_t (&weights)[F::kSteps][4]) {
#pragma unroll
    for (int step = kFrom; step < kTo; ++step) {
#pragma unroll
      for (int r = 0; r < 4; ++r) asm volatile("mov.b32 %0, 0;" : "=r"(weights[step][r]));
    }
  }

 private:
  template <class Scores>
  __device__ __forceinline__ float2 weigh(Scores& s, int j, int h) {
    const float a = cuda::exp2_fast(fmaf(s.at(j, h, 0), scale_log2, offset[h]));
    const float b = cuda::exp2_fast(fmaf(s.at(j, h, 1), scale_log2, offset[h]));
    sum[h] += a + b;
    return {a, b};
  }
  template <class Scores>
  __device__ __forceinline__ void weigh_step(Scores& s, int step, uint32_t (&a)[4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int h = r % 2;
      if constexpr (F::kBytes) {
        const int j = step * 4 + r / 2 * 2;
        if (j * 8 >= F::kKeys) {
          a[r] = 0;
        } else {
          const float2 low = weigh(s, j, h), high = weigh(s, j + 1, h);
          a[r] = pack_e4m3(low.x, low.y, high.x, high.y);
        }
      } else {
        const float2 pair = weigh(s, step * 2 + r / 2, h);
        a[r] = cuda::pack_pair<typename F::Operand>(pair.x, pair.y);
      }
    }
  }
};

// Sums of 64 channels (16-bit operands), or of all.
template <class F>
struct ShortSums {
  static constexpr int kColumns = F::kBytes ? F::kHead : 64;
  float o[F::kBlocks][kColumns / 2];
  __device__ __forceinline__ void pin_all() {
#pragma unroll
    for (int b = 0; b < F::kBlocks; ++b) pin(o[b]);
  }
  // Begins to add the keys from step kFrom to kTo; v: values, transposed ones of 8-bit operands. kFresh: to nothing.
  template <int kFrom, int kTo, bool kFresh>
  __device__ __forceinline__ void add_steps(const uint32_t (&weights)[F::kSteps][4], uint32_t v) {
    pin_all();
    begin_products();
#pragma unroll
    for (int step = kFrom; step < kTo; ++step)
      add(weights[planted(Fault::kWeightsOfBefore) && step == 1 ? 0 : step], v, step, !kFresh || step > kFrom);
    commit_products();
  }
  __device__ __forceinline__ void scale(const float (&by)[2]) {
#pragma unroll
    for (int b = 0; b < F::kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) o[b][i] *= by[i / 2 % 2];
    }
  }

 private:
  __device__ __forceinline__ void add(const uint32_t (&a)[4], uint32_t v, int step, bool more) {
    if constexpr (F::kBytes) {
      const uint64_t desc = operand_descriptor(v) + (step / 4 * F::kTransposedTile >> 4) + step % 4 * kDescriptorStepK;
      Products<typename F::Operand, F::kHead>::registers(o[0], a, desc, more);
    } else {
#pragma unroll
      for (int b = 0; b < F::kBlocks; ++b)
        Products<typename F::Operand, 64>::registers_by_rows(
            o[b], a, operand_descriptor(v) + (b * F::kValueBlock >> 4) + step * (16 * 128 >> 4), more);
    }
  }
};

}  // namespace tessera::sm90
