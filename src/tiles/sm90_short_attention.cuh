// SPDX-License-Identifier: Apache-2.0
// Attention on Hopper where a head's keys fit in shared memory (at most 256): the kernel that the short variants of ops/attention instantiate.
//   y[i] = sum_j p_j v_j / sum_j p_j,  p_j = exp(scale * (q_i . k_j - max)),  e4m3 operands: p_j rounded as 448 p_j, their sum not (ops/attention/attention.h)
// A block walks over visits (a head and some tiles of 64 of its queries). One warp loads by TMA: keys and values into stages, tiles of queries into slots. Warpgroups take the
// tiles in turn, each at its own pace, so that one's products run under another's exponentials. A warpgroup holds all scores of its 64 queries in registers: the softmax is
// the plain one, with no running maximum. wgmma reads e4m3 only along k: three more warps write v transposed (archs/sm90/fragments.h).
// 16-bit operands lie in blocks of 64 channels (rows of 128 bytes), 8-bit ones in one block of rows of 64 or 128 bytes; channels and tokens that do not exist are loaded as 0.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "archs/cuda/instructions.cuh"
#include "archs/sm90/fragments.h"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "tiles/cuda_elements.cuh"
#include "tiles/fast_divide.h"

namespace tessera::sm90 {

constexpr int kWarpgroup = 128, kQueryTile = 64, kWarpRows = 16;
constexpr int kShortBytes = 227 * 1024 - 1024 - 256;  // of a block's shared memory, less what alignment and barriers take

enum class ShortResult : int { kF16, kBf16, kE4m3, kI8 };  // kI8: of 16-bit operands

struct ShortMaps {
  CUtensorMap q, k, v, y;  // boxes: 64 queries, kKeys keys, kValueRows values, 16 results
};

struct ShortParams {
  int visits, visits_per_head, tiles_per_visit;
  int queries, keys, value_size;
  FastDivide per_head, heads;
  int heads_per_kv;
  float scale_log2;                                    // the problem's scale, times log2 e
  const float *q_scale, *k_scale, *v_scale, *y_scale;  // null: 1
  ShortResult result;
  uint8_t* y;  // where rows of y are no multiples of 16 bytes (e4m3): written without the copy engine; else null
};

// One instantiation. kHead: channels of q, k and v, padded (64 or 128; 8-bit also 96). kKeys: keys held, a multiple of 16. kEarly: the products with v begin when
// half of the row has been exponentiated.
template <class Operand_, int kHead_, int kKeys_, int kConsumers_ = kKeys_ <= 208 ? 3 : 2, bool kEarly_ = false>
struct ShortForm {
  using Operand = Operand_;
  static constexpr int kHead = kHead_, kKeys = kKeys_, kConsumers = kConsumers_;
  static constexpr bool kEarly = kEarly_;
  static constexpr bool kBytes = sizeof(Operand) == 1;
  static_assert(kKeys % 16 == 0 && kKeys <= 256 && (kHead == 64 || kHead == 128 || (kBytes && kHead == 96)));

  static constexpr int kRowBytes = kBytes && kHead == 64 ? 64 : 128;
  static constexpr int kBlocks = kBytes ? 1 : kHead / 64, kBlockChannels = kRowBytes / static_cast<int>(sizeof(Operand));
  static constexpr int kStepKeys = kBytes ? 32 : 16;  // of one product with v
  static constexpr int kSteps = (kKeys + kStepKeys - 1) / kStepKeys, kValueRows = kSteps * kStepKeys;
  // Scores are two results of about half the keys: one of more than 200 would not fit where a thread has 128 registers before the loaders hand theirs over.
  static constexpr int kFirstKeys = kKeys / 64 * 32, kSecondKeys = kKeys - kFirstKeys, kFirstSteps = kFirstKeys / kStepKeys;

  static constexpr int kQueryBlock = kQueryTile * kRowBytes, kKeyBlock = kKeys * kRowBytes, kValueBlock = kValueRows * kRowBytes;
  static constexpr int kQueryBytes = kBlocks * kQueryBlock, kKeyBytes = kBlocks * kKeyBlock, kValueBytes = kBlocks * kValueBlock;
  static constexpr int kTransposedTile = kHead * 128;  // 128 tokens of all channels
  static constexpr int kTransposedBytes = kBytes ? (kValueRows + 127) / 128 * kTransposedTile : 0;
  static constexpr int kStageBytes = kKeyBytes + kValueBytes + kTransposedBytes;
  static constexpr int kResultBlock = kWarpRows * 128;  // of a warp: 16 rows of 64 channels of 16 bits, or of 128 of 8
  static constexpr int kResultBytes = kResultBlock * ((kHead + 63) / 64);

  static constexpr int fitting_stages(int slots) {
    const int stages = (kShortBytes - slots * kQueryBytes - 4 * kConsumers * kResultBytes) / kStageBytes;
    return stages < 4 ? stages : 4;
  }
  // A multiple of the consumers: a slot is always the same one's, who therefore never waits for a phase of its barrier while the phase before is still under way.
  static constexpr int kSlots = fitting_stages(2 * kConsumers) == fitting_stages(kConsumers) ? 2 * kConsumers : kConsumers;
  static constexpr int kStages = fitting_stages(kSlots);
  static_assert(kStages > 0);
  static constexpr int kSlotsAt = kStages * kStageBytes, kResultsAt = kSlotsAt + kSlots * kQueryBytes, kBarriersAt = kResultsAt + 4 * kConsumers * kResultBytes;
  static constexpr int kBarriers = 4 * kStages + 2 * kSlots;
  static constexpr int kSharedBytes = kBarriersAt + kBarriers * 8 + kSwizzleAtomBytes;  // what a launch asks for
  // A quarter of a multiprocessor has 512 registers for each lane of its warps (two consumers: 504 of them): consumers take most, the loader and the transposers the rest.
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr int kLoaderRegisters = kBytes ? 56 : kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? (kBytes ? 224 : 232) : kBytes ? 152 : 160;
  static_assert(kKeyBlock % kSwizzleAtomBytes == 0 && kValueBlock % kSwizzleAtomBytes == 0 && kQueryBlock % kSwizzleAtomBytes == 0);
};

// Where a block's memory lies and its barriers (shared addresses).
template <class F>
struct ShortMemory {
  uint32_t base;  // a multiple of 1024
  __device__ uint32_t keys(int stage) const { return base + stage * F::kStageBytes; }
  __device__ uint32_t values(int stage) const { return keys(stage) + F::kKeyBytes; }
  __device__ uint32_t transposed(int stage) const { return values(stage) + F::kValueBytes; }
  __device__ uint32_t queries(int slot) const { return base + F::kSlotsAt + slot * F::kQueryBytes; }
  __device__ uint32_t results(int warp) const { return base + F::kResultsAt + warp * F::kResultBytes; }
  __device__ uint32_t keys_full(int stage) const { return barrier(stage); }
  __device__ uint32_t values_full(int stage) const { return barrier(F::kStages + stage); }
  __device__ uint32_t values_ready(int stage) const { return F::kBytes ? barrier(2 * F::kStages + stage) : values_full(stage); }
  __device__ uint32_t stage_empty(int stage) const { return barrier(3 * F::kStages + stage); }
  __device__ uint32_t queries_full(int slot) const { return barrier(4 * F::kStages + slot); }
  __device__ uint32_t queries_empty(int slot) const { return barrier(4 * F::kStages + F::kSlots + slot); }

 private:
  __device__ uint32_t barrier(int i) const { return base + F::kBarriersAt + i * 8; }
};

// A place in a ring of kCount: its number and how often the ring went round, modulo 2.
template <int kCount>
struct Ring {
  int at = 0;
  uint32_t parity = 0;
  __device__ void step() {
    if (++at == kCount) at = 0, parity ^= 1;
  }
};

struct ShortVisit {
  int batch, head, first_tile, tiles;
  __device__ ShortVisit(const ShortParams& p, int index) {
    const uint32_t bh = p.per_head.quotient(index);
    first_tile = (index - static_cast<int>(bh) * p.visits_per_head) * p.tiles_per_visit;
    tiles = min(p.tiles_per_visit, (p.queries + kQueryTile - 1) / kQueryTile - first_tile);
    batch = p.heads.quotient(bh);
    head = bh - batch * p.heads.divisor;
  }
  // First query of tile t, the rows before it included: of a last tile with few queries not always the first warps work, but those whose turn it is (`count`: of visits), so
  // that the four quarters of a multiprocessor have the same to do.
  __device__ int first_query(const ShortParams& p, int t, int count) const {
    const int first = (first_tile + t) * kQueryTile, idle = 3 - (p.queries - first - 1) / kWarpRows;
    return first - (count % 4 <= idle ? count % 4 * kWarpRows : 0);
  }
};

template <class F>
__device__ void load_visits(const ShortMaps& maps, const ShortParams& p, const ShortMemory<F>& memory) {
  Ring<F::kStages> stage;
  Ring<F::kSlots> slot;
  int count = 0;
  for (int i = blockIdx.x; i < p.visits; i += gridDim.x, ++count, stage.step()) {
    const ShortVisit at(p, i);
    const int kv_head = at.head / p.heads_per_kv;
    wait(memory.stage_empty(stage.at), stage.parity ^ 1);
    arrive_expecting(memory.keys_full(stage.at), F::kKeyBytes);
    for (int b = 0; b < F::kBlocks; ++b)
      load_box(memory.keys(stage.at) + b * F::kKeyBlock, &maps.k, b * F::kBlockChannels, kv_head, 0, at.batch, memory.keys_full(stage.at));
    for (int t = 0; t < at.tiles; ++t, slot.step()) {
      wait(memory.queries_empty(slot.at), slot.parity ^ 1);
      arrive_expecting(memory.queries_full(slot.at), F::kQueryBytes);
      for (int b = 0; b < F::kBlocks; ++b)
        load_box(memory.queries(slot.at) + b * F::kQueryBlock, &maps.q, b * F::kBlockChannels, at.head, at.first_query(p, t, count), at.batch,
                 memory.queries_full(slot.at));
      if (t > 0) continue;
      arrive_expecting(memory.values_full(stage.at), F::kValueBytes);
      for (int b = 0; b < F::kBlocks; ++b)
        load_box(memory.values(stage.at) + b * F::kValueBlock, &maps.v, b * F::kBlockChannels, kv_head, 0, at.batch, memory.values_full(stage.at));
    }
  }
}

// Three warps: v of each stage, [token][channel], becomes [channel][token].
constexpr int kTransposers = 3;
template <class F>
__device__ void transpose_values(const ShortParams& p, const ShortMemory<F>& memory) {
  constexpr int kPairs = F::kHead / 32, kTasks = F::kValueRows / 16 * kPairs;  // a task: 16 tokens, 32 channels
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 1;
  const Place source = transpose_source(lane);
  const int row = transpose_target(lane);
  Ring<F::kStages> stage;
  for (int i = blockIdx.x; i < p.visits; i += gridDim.x, stage.step()) {
    wait(memory.values_full(stage.at), stage.parity);
    const uint32_t from = memory.values(stage.at), to = memory.transposed(stage.at);
#pragma unroll 2
    for (int task = warp; task < kTasks; task += kTransposers) {
      const int group = task / kPairs, pair = task % kPairs;
      uint32_t r[4];
      cuda::load_matrices_transposed(r, from + swizzled_offset<F::kRowBytes>(group * 16 + source.row, (pair * 2 + source.chunk) * 16));
      const uint32_t parted[4] = {__byte_perm(r[0], r[1], kEvenChannels), __byte_perm(r[0], r[1], kOddChannels), __byte_perm(r[2], r[3], kEvenChannels),
                                  __byte_perm(r[2], r[3], kOddChannels)};
      store_matrices(to + group / 8 * F::kTransposedTile + swizzled_offset(pair * 32 + row, group % 8 * 16), parted);
    }
    fence_for_copy_engine();  // wgmma reads as the copy engine does
    __syncwarp();
    if (lane == 0) arrive(memory.values_ready(stage.at));
  }
}

// Largest of a row that four neighbouring lanes hold, and the sum.
__device__ __forceinline__ float max_across_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float sum_across_quad(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Four numbers as e4m3 codes, the first in the lowest byte.
__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint32_t r;
  asm("{\n.reg .b16 low, high;\ncvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\ncvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\nmov.b32 %0, {low, high};\n}"
      : "=r"(r)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return r;
}
__device__ __forceinline__ uint16_t pack_e4m3(float a, float b) {
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(r) : "f"(a), "f"(b));
  return r;
}

// A thread's scores of 64 queries: rows r and r + 8 of its warp (h = 0 and 1), of each group j of eight keys two neighbours.
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
    begin_half(first, q, k);
    begin_half(second, q, k + F::kFirstKeys * F::kRowBytes);
  }

  // Keys from group kFrom to kTo that do not exist were loaded as zeros: out they go.
  template <int kFrom, int kTo>
  __device__ __forceinline__ void hide(int keys) {
    const int left = keys - result_col(threadIdx.x);
#pragma unroll
    for (int j = kFrom; j < kTo; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (j * 8 + i >= left) at(j, 0, i) = at(j, 1, i) = -INFINITY;
      }
    }
  }

  template <int kFrom, int kTo>
  __device__ __forceinline__ float top(int h) {
    float a = -INFINITY, b = -INFINITY;
#pragma unroll
    for (int j = kFrom; j < kTo; j += 2) {
      a = fmaxf(a, fmaxf(at(j, h, 0), at(j, h, 1)));
      b = fmaxf(b, fmaxf(at(j + 1, h, 0), at(j + 1, h, 1)));
    }
    return fmaxf(a, b);
  }

 private:
  template <int kCount>
  __device__ __forceinline__ static void begin_half(float (&s)[kCount], uint32_t q, uint32_t k) {
    const uint64_t q_desc = operand_descriptor<F::kRowBytes>(q), k_desc = operand_descriptor<F::kRowBytes>(k);
    constexpr int kStepsPerBlock = F::kRowBytes / 32;
#pragma unroll
    for (int step = 0; step < F::kHead * static_cast<int>(sizeof(typename F::Operand)) / 32; ++step) {
      const int block = step / kStepsPerBlock, inside = step % kStepsPerBlock;
      Products<typename F::Operand, kCount * 2>::shared(s, q_desc + (block * F::kQueryBlock >> 4) + inside * kDescriptorStepK,
                                                        k_desc + (block * F::kKeyBlock >> 4) + inside * kDescriptorStepK, step > 0);
    }
    commit_products();
  }
};

// The softmax of a thread's two rows: weights 2^(score * scale_log2 + offset), and their sum.
template <class F>
struct ShortRows {
  float scale_log2;
  float offset[2], sum[2] = {0, 0};

  __device__ __forceinline__ void set_top(float top0, float top1) {
    constexpr float kLog2Of448 = 8.807354922f;  // weights that become e4m3 are 448 at most
    offset[0] = fmaf(-max_across_quad(top0), scale_log2, F::kBytes ? kLog2Of448 : 0.0f);
    offset[1] = fmaf(-max_across_quad(top1), scale_log2, F::kBytes ? kLog2Of448 : 0.0f);
  }

  // Operands A of products with v.
  template <int kFrom, int kTo>
  __device__ __forceinline__ void weigh_steps(ShortScores<F>& s, uint32_t (&weights)[F::kSteps][4]) {
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
  __device__ __forceinline__ float2 weigh(ShortScores<F>& s, int j, int h) {
    const float a = cuda::exp2_fast(fmaf(s.at(j, h, 0), scale_log2, offset[h]));
    const float b = cuda::exp2_fast(fmaf(s.at(j, h, 1), scale_log2, offset[h]));
    sum[h] += a + b;
    return {a, b};
  }
  __device__ __forceinline__ void weigh_step(ShortScores<F>& s, int step, uint32_t (&a)[4]) {
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
  // Begins to add the keys of some steps; v: values, transposed ones of 8-bit operands.
  template <int kFrom, int kTo>
  __device__ __forceinline__ void add_steps(const uint32_t (&weights)[F::kSteps][4], uint32_t v) {
    if constexpr (kFrom == 0) pin_all();
    begin_products();
#pragma unroll
    for (int step = kFrom; step < kTo; ++step) add(weights[step], v, step);
    commit_products();
  }

 private:
  __device__ __forceinline__ void add(const uint32_t (&a)[4], uint32_t v, int step) {
    if constexpr (F::kBytes) {
      const uint64_t desc = operand_descriptor(v) + (step / 4 * F::kTransposedTile >> 4) + step % 4 * kDescriptorStepK;
      Products<typename F::Operand, F::kHead>::registers(o[0], a, desc, step > 0);
    } else {
#pragma unroll
      for (int b = 0; b < F::kBlocks; ++b)
        Products<typename F::Operand, 64>::registers_by_rows(o[b], a, operand_descriptor(v) + (b * F::kValueBlock >> 4) + step * (16 * 128 >> 4), step > 0);
    }
  }
};

__device__ __forceinline__ void store_shared(uint32_t to, uint32_t a, uint32_t b) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, uint16_t a) { asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(a) : "memory"); }

// A warp's 16 rows to shared memory, in blocks of 64 channels of 16 bits (rows of 128 bytes) ...
template <class F, class Half>
__device__ __forceinline__ void stage_halves(const ShortSums<F>& sums, const float (&factor)[2], uint32_t to) {
  const int lane = threadIdx.x % 32;
  if constexpr (F::kBytes) {  // four neighbouring channels of 16
#pragma unroll
    for (int g = 0; g < F::kHead / 16; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float *even = &sums.o[0][g * 8 + h * 2], *odd = even + 4;
        store_shared(to + g / 4 * F::kResultBlock + swizzled_offset(lane / 4 + h * 8, g % 4 * 32 + lane % 4 * 8),
                     cuda::pack_pair<Half>(even[0] * factor[h], odd[0] * factor[h]), cuda::pack_pair<Half>(even[1] * factor[h], odd[1] * factor[h]));
      }
    }
  } else {
#pragma unroll
    for (int b = 0; b < F::kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float* o = &sums.o[b][j * 4];
        const uint32_t r[4] = {cuda::pack_pair<Half>(o[0] * factor[0], o[1] * factor[0]), cuda::pack_pair<Half>(o[2] * factor[1], o[3] * factor[1]),
                               cuda::pack_pair<Half>(o[4] * factor[0], o[5] * factor[0]), cuda::pack_pair<Half>(o[6] * factor[1], o[7] * factor[1])};
        store_matrices(to + b * F::kResultBlock + swizzled_offset(lane % 16, (j + lane / 16) * 16), r);
      }
    }
  }
}

// ... or as e4m3 or int8 in rows of 64 or 128 bytes.
template <class F>
constexpr int kResultRow = F::kHead == 64 ? 64 : 128;
template <class F, bool kInt8>
__device__ __forceinline__ void stage_codes(const ShortSums<F>& sums, const float (&factor)[2], uint32_t to) {
  constexpr int kRow = kResultRow<F>;
  const int lane = threadIdx.x % 32;
  if constexpr (F::kBytes) {
#pragma unroll
    for (int g = 0; g < F::kHead / 16; g += 2) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float *even = &sums.o[0][(g + i / 2) * 8 + i % 2 * 2], *odd = even + 4, f = factor[i % 2];
        r[i] = pack_e4m3(even[0] * f, odd[0] * f, even[1] * f, odd[1] * f);
      }
      store_matrices(to + swizzled_offset<kRow>(lane % 16, (g + lane / 16) * 16), r);
    }
  } else {
#pragma unroll
    for (int j = 0; j < F::kHead / 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* o = &sums.o[j / 8][j % 8 * 4 + h * 2];
        const float a = o[0] * factor[h], b = o[1] * factor[h];
        store_shared(to + swizzled_offset<kRow>(lane / 4 + h * 8, j * 8 + lane % 4 * 2), kInt8 ? cuda::encode_i8_pair(a, b) : pack_e4m3(a, b));
      }
    }
  }
}

// Codes from shared memory to rows of y that the copy engine cannot address: eight bytes a lane.
template <class F>
__device__ void copy_codes(const ShortParams& p, uint32_t from, int batch, int head, int first_query) {
  const int lane = threadIdx.x % 32, channel = lane % 16 * 8;
  const int64_t row_bytes = int64_t{p.heads.divisor} * p.value_size;
  __syncwarp();
  for (int r = lane / 16; r < kWarpRows; r += 2) {
    if (channel >= p.value_size || first_query + r >= p.queries) continue;
    uint2 codes;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(codes.x), "=r"(codes.y)
                 : "r"(from + swizzled_offset<kResultRow<F>>(r, channel))
                 : "memory");
    *reinterpret_cast<uint2*>(p.y + (int64_t{batch} * p.queries + first_query + r) * row_bytes + int64_t{head} * p.value_size + channel) = codes;
  }
  __syncwarp();
}

// A warp's 16 rows of y, from first_query on.
template <class F>
__device__ __forceinline__ void write_rows(const ShortMaps& maps, const ShortParams& p, const ShortSums<F>& sums, const float (&factor)[2], uint32_t staging,
                                           int visit, int first_query) {
  const ShortVisit at(p, visit);  // once more: two registers less while the scores are held
  const bool leader = threadIdx.x % 32 == 0;
  if (leader) wait_stores_read();  // those of the last tile
  __syncwarp();
  if (p.result == ShortResult::kE4m3) {
    stage_codes<F, false>(sums, factor, staging);
  } else if constexpr (F::kBytes) {
    p.result == ShortResult::kF16 ? stage_halves<F, __half>(sums, factor, staging) : stage_halves<F, __nv_bfloat16>(sums, factor, staging);
  } else if (p.result == ShortResult::kI8) {
    stage_codes<F, true>(sums, factor, staging);
  } else {
    stage_halves<F, typename F::Operand>(sums, factor, staging);
  }
  if (p.y != nullptr) return copy_codes<F>(p, staging, at.batch, at.head, first_query);
  fence_for_copy_engine();
  __syncwarp();
  if (!leader) return;
  store_box(&maps.y, 0, at.head, first_query, at.batch, staging);
  if (F::kHead > 64 && (p.result == ShortResult::kF16 || p.result == ShortResult::kBf16) && p.value_size > 64) store_box(&maps.y, 64, at.head, first_query, at.batch, staging + F::kResultBlock);
  commit_stores();
}

template <class F>
__device__ void attend_visits(const ShortMaps& maps, const ShortParams& p, const ShortMemory<F>& memory, int consumer, int consumers) {
  const bool leader = threadIdx.x % 32 == 0;
  const int warp = threadIdx.x % kWarpgroup / 32;
  const uint32_t staging = memory.results(consumer * 4 + warp);
  const auto scale = [](const float* s) { return s == nullptr ? 1.0f : *s; };
  // Absent keys have a score of minus infinity: a scale that underflows may not make NaN of it.
  const float scale_log2 = fmaxf(p.scale_log2 * scale(p.q_scale) * scale(p.k_scale), 0x1p-100f);
  const float factor = scale(p.v_scale) / scale(p.y_scale);
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
      ShortScores<F> scores;
      scores.begin(memory.queries(slot.at), memory.keys(stage.at));
      const int first_query = at.first_query(p, t, count) + warp * kWarpRows;  // of this warp
      const bool works = first_query >= (at.first_tile + t) * kQueryTile && first_query < p.queries;
      const bool few = p.keys <= F::kKeys - 16;  // keys may be missing anywhere
      constexpr int kGroups = ShortScores<F>::kGroups, kFirstGroups = ShortScores<F>::kFirstGroups;
      float top[2];
      wait_products<1>();
      pin(scores.first);
      if (works) {
        if (few) scores.template hide<0, kFirstGroups>(p.keys);
        for (int h = 0; h < 2; ++h) top[h] = scores.template top<0, kFirstGroups>(h);
      }
      wait_products<0>();
      pin(scores.second);
      if (leader) arrive(memory.queries_empty(slot.at));

      ShortRows<F> rows{.scale_log2 = scale_log2};
      ShortSums<F> sums;
      uint32_t weights[F::kSteps][4];
      if (works) {
        if (few) scores.template hide<kFirstGroups, kGroups - 2>(p.keys);
        scores.template hide<kGroups - 2, kGroups>(p.keys);
        for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], scores.template top<kFirstGroups, kGroups>(h));
        rows.set_top(top[0], top[1]);
      }
      const uint32_t v = F::kBytes ? memory.transposed(stage.at) : memory.values(stage.at);
      constexpr int kEarly = F::kEarly ? F::kFirstSteps : F::kSteps;
      works ? rows.template weigh_steps<0, kEarly>(scores, weights) : rows.template skip_steps<0, kEarly>(weights);
      wait(memory.values_ready(stage.at), stage.parity);
      sums.template add_steps<0, kEarly>(weights, v);
      if constexpr (F::kEarly) {
        works ? rows.template weigh_steps<kEarly, F::kSteps>(scores, weights) : rows.template skip_steps<kEarly, F::kSteps>(weights);
        sums.template add_steps<kEarly, F::kSteps>(weights, v);
      }
      float factors[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) factors[h] = cuda::reciprocal_fast(sum_across_quad(rows.sum[h])) * factor;
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

// How many of its tiles a visit to a head takes: all of them where there are heads enough, else fewer, so that more blocks share the work. A visit costs about as much as two
// tiles besides its own (its keys and values are loaded).
inline int choose_tiles_per_visit(int64_t heads, int64_t queries, int processors) {
  const int64_t tiles = (queries + kQueryTile - 1) / kQueryTile;
  int64_t best = 1, best_cost = INT64_MAX;
  for (int64_t take : {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{8}}) {
    const int64_t visits = heads * ((tiles + take - 1) / take);
    const int64_t cost = (visits + processors - 1) / processors * (2 + (take < tiles ? take : tiles));
    if (cost < best_cost) best = take, best_cost = cost;
  }
  return static_cast<int>(best);
}

}  // namespace tessera::sm90
