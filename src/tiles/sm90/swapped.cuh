// SPDX-License-Identifier: Apache-2.0
// The swapped mainloop on Hopper, for few rows: y[m, n] = program(sum_k x[m, k] * w[n, k]) with 64 rows of w as the 64
// rows of a wgmma and the tokens (rows of x) as its columns, so that 16 tokens waste nothing. What counts is the time
// from the end of the kernel before this one to the end of this one: a block holds a slice of K whole in shared memory
// where that fits, the weights arrive before the kernel before this one has ended, and the slices of one tile are
// blocks of a cluster. Each sends the others its sums of the tokens that they finish (swapped_shape.h), adds up those
// of its own tokens, slice 0 first, and runs the program: no atomics, the same bits every time. A gate's 64 channels
// are 32 of its argument and the 32 that it multiplies (Layout::kHalves32), in two neighbours of four threads. A third
// kind turns heads by their tokens' angles and writes columns into caches (swapped_heads.cuh).
#pragma once

#include "archs/cuda/instructions.cuh"
#include "archs/planted_fault.h"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "ir/program.h"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/row_moments.cuh"
#include "tiles/sm90/activation_fast.h"
#include "tiles/sm90/swapped_heads.cuh"
#include "tiles/sm90/swapped_shape.h"
#include "types/layout.h"

namespace tessera::sm90 {

constexpr int kSwappedThreads = 128 + 32;  // a warpgroup that multiplies and finishes, a warp that loads

enum class SwappedKind : uint8_t { kPlain, kGated, kHeads };

struct SwappedMaps {
  CUtensorMap x, w;  // boxes of as many rows as tokens, and of 64 rows (32 where it is not kPlain), of 128 bytes
};

struct SwappedParams {
  int m, n, k_blocks, tiles_m;
  SwappedShape shape;
  int stages, body_bytes, barriers;  // swapped_memory
  const float* x_scale;              // null: 1
  const float* w_scale;              // null: 1
  int w_scale_stride;                // 1: per channel, 0: per tensor
  const void *bias, *gain;           // null where the program has none
  Element bias_element, gain_element;
  bool computed;         // a vector is what an earlier kernel makes, no constant
  const float* y_scale;  // 8-bit results; null: 1
  const void* residual;  // of y's type; null where the program has none
  int64_t residual_stride;
  void* y;
  Element y_element;  // f16, bf16, f32, e4m3, i8: a branch per eight numbers, so that one kernel serves all
  SmoothActivation act;
  int cols;         // of y: n, or n / 2 where there is a gate
  int second_half;  // stored rows of w before those that a gate multiplies
  // Both ends of a folded norm (steps/row_moments.h): factors of x's rows, and beside y the moments of its rows
  // and codes of it.
  cuda::RowFactors rows;
  float2* moments;  // null: none
  void* codes;      // null: none
  Element codes_element;
  const float* codes_scale;  // null: 1
  const void* codes_gain;    // null: 1 for all channels; else codes are of y times this
  Element codes_gain_element;
  SwappedHeads heads;  // kHeads
};

// Where this block stands. Blocks of a cluster: slices of K; clusters: tiles of tokens first, so that neighbours read
// the same weights.
template <int kTokens>
struct SwappedBlock {
  uint32_t base, received;  // shared memory; the barrier of sums from other slices, those of the stages behind it
  uint8_t* bytes;           // the same place as base
  int slice, token, channel, k_begin, k_count;

  __device__ SwappedBlock(const SwappedParams& p, uint8_t* shared)
      : base(cuda::shared_address(shared)), received(base + p.barriers), bytes(shared) {
    // split is a power of two
    const int split_bits = __ffs(p.shape.split) - 1;
    const int cluster = static_cast<int>(blockIdx.x) >> split_bits, group = cluster / p.tiles_m;
    slice = split_bits > 0 ? static_cast<int>(rank_in_cluster()) : 0;
    token = (cluster - group * p.tiles_m) * kTokens;
    channel = group * kSwappedChannels;
    k_begin = p.k_blocks * slice >> split_bits;  // slice_begin
    k_count = (p.k_blocks * (slice + 1) >> split_bits) - k_begin;
  }
  __device__ uint32_t w(int stage) const { return base + stage * swapped_stage_bytes(kTokens); }
  __device__ uint32_t x(int stage) const { return w(stage) + kSwappedWBytes; }
  __device__ uint32_t full(int stage) const { return received + 8 + stage * 16; }
  __device__ uint32_t empty(int stage) const { return full(stage) + 8; }
};

// Where the block's weights begin; of all but kPlain two boxes of 32 rows each.
struct WeightRows {
  int first, second;
};
template <SwappedKind kKind>
__device__ __forceinline__ WeightRows weight_rows(const SwappedParams& p, int channel) {
  if constexpr (kKind == SwappedKind::kGated) return {channel / 2, p.second_half + channel / 2};
  if constexpr (kKind == SwappedKind::kHeads)
    return {p.heads.columns.first_run(channel), p.heads.columns.second_run(channel)};
  return {channel, 0};
}

// 128 bytes of K of the block's weights.
template <SwappedKind kKind, int kTokens>
__device__ __forceinline__ void load_weights(const SwappedMaps& maps, const WeightRows& rows,
                                             const SwappedBlock<kTokens>& block, int stage, int k) {
  load_box(block.w(stage), &maps.w, k, rows.first, block.full(stage));
  if constexpr (kKind != SwappedKind::kPlain)
    load_box(block.w(stage) + kSwappedWBytes / 2, &maps.w, k, rows.second, block.full(stage));
}

// What one thread does: the barriers and the first weights, which need not wait.
template <class In, SwappedKind kKind, int kTokens>
__device__ __forceinline__ void begin_loads(const SwappedMaps& maps, const SwappedParams& p,
                                            const SwappedBlock<kTokens>& block) {
  constexpr int kBlockK = 128 / sizeof(In);
  const WeightRows rows = weight_rows<kKind>(p, block.channel);
  prefetch(&maps.w);
  prefetch(&maps.x);
  for (int i = 0; i < p.stages; ++i) {
    init_barrier(block.full(i), 1);
    init_barrier(block.empty(i), 1);
  }
  init_barrier(block.received, 1);
  fence_barrier_init();
  fence_for_tma();
  if (p.shape.split > 1) arrive_expecting(block.received, p.barriers - p.body_bytes);  // all that lies between
#pragma unroll 1
  for (int i = 0; i < p.stages && i < block.k_count; ++i) {
    arrive_expecting(block.full(i), swapped_stage_bytes(kTokens));
    load_weights<kKind>(maps, rows, block, i, (block.k_begin + i) * kBlockK);
  }
}

// The same thread, once x is there; then the stages again and again where the slice is longer.
template <class In, SwappedKind kKind, int kTokens>
__device__ __forceinline__ void finish_loads(const SwappedMaps& maps, const SwappedParams& p,
                                             const SwappedBlock<kTokens>& block) {
  constexpr int kBlockK = 128 / sizeof(In);
  const WeightRows rows = weight_rows<kKind>(p, block.channel);
  const int first = min(p.stages, block.k_count);
  int k = block.k_begin * kBlockK;
  uint32_t x = block.x(0), full = block.full(0);
  cuda::wait_for_earlier_kernels();
#pragma unroll 1
  for (int i = 0; i < first; ++i, k += kBlockK, x += swapped_stage_bytes(kTokens), full += 16)
    load_box(x, &maps.x, k, block.token, full);
  int stage = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int i = first; i < block.k_count; ++i, k += kBlockK) {
    wait(block.empty(stage), parity);
    arrive_expecting(block.full(stage), swapped_stage_bytes(kTokens));
    load_weights<kKind>(maps, rows, block, stage, k);
    load_box(block.x(stage), &maps.x, k, block.token, block.full(stage));
    if (++stage == p.stages) stage = 0, parity ^= 1;
  }
}

// The products of 128 bytes of K, w and x at these addresses. A descriptor goes through uniform registers, and where
// the compiler cannot tell that a number is the same in all lanes it moves each half of each descriptor there right
// before its product: four products took 150 ns in a chain on an H200. A reduction over the warp writes a uniform
// register itself, and of all four descriptors only the low halves differ.
template <class In, int kTokens>
__device__ __forceinline__ void multiply_stage(SumOf<In> (&d)[kTokens / 2], uint32_t w, uint32_t x, bool add) {
  const uint64_t w_first = operand_descriptor(w), x_first = operand_descriptor(x);
  const uint32_t high = static_cast<uint32_t>(operand_descriptor(0) >> 32),
                 w_low = __reduce_or_sync(0xffffffffu, static_cast<uint32_t>(w_first)),
                 x_low = __reduce_or_sync(0xffffffffu, static_cast<uint32_t>(x_first));
  const auto step = [high](uint32_t low, int k) {
    return uint64_t{high} << 32 | (low + k * static_cast<uint32_t>(kDescriptorStepK));
  };
#pragma unroll
  for (int k = 0; k < 4; ++k) Products<In, kTokens>::shared(d, step(w_low, k), step(x_low, k), add || k > 0);
}

template <class In, int kTokens>
__device__ __forceinline__ void multiply_slice(SumOf<In> (&d)[kTokens / 2], const SwappedParams& p,
                                               const SwappedBlock<kTokens>& block) {
  int stage = 0, last = 0;
  uint32_t parity = 0;
  for (int i = 0; i < block.k_count; ++i) {
    wait(block.full(stage), parity);
    pin(d);
    begin_products();
    multiply_stage<In, kTokens>(d, block.w(stage), block.x(stage), i > 0);
    commit_products();
    wait_products<1>();  // the block before this one is done: its stage is free
    if (i > 0 && threadIdx.x == 0) arrive(block.empty(last));
    last = stage;
    if (++stage == p.stages) stage = 0, parity ^= 1;
  }
  wait_products<0>();
  pin(d);
}

// What the program needs of a thread's eight channels: v = sum * factor + bias (halved where an activation follows,
// activation_fast.h), then v * gain, in units of y's scale. `multiplied`: channels that a gate multiplies, which take
// that unit before. channel: a row of w as the model has them.
template <bool kGated>
struct SwappedColumns {
  float factor[8], bias[8], gain[8];
  float code[8];  // from a result to its code beside it

  __device__ __forceinline__ SwappedColumns(const SwappedParams& p, int channel, bool multiplied) {
    const float to_code = p.y_scale != nullptr ? 1.0f / *p.y_scale : 1.0f, unit = kGated ? 1.0f : to_code;
    const float half = kGated && multiplied ? to_code : p.act.present ? 0.5f : 1.0f;
    const float x_scale = (p.x_scale != nullptr ? *p.x_scale : 1.0f) * half;
    const float code_unit = p.codes_scale != nullptr ? 1.0f / *p.codes_scale : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) factor[i] = x_scale, bias[i] = 0.0f, gain[i] = 1.0f, code[i] = 1.0f;
    if (channel >= p.n) return;
    if (p.bias != nullptr) cuda::load8(p.bias_element, p.bias, channel, bias);
    if (p.gain != nullptr) cuda::load8(p.gain_element, p.gain, channel, gain);
    if (p.codes_gain != nullptr && !planted(Fault::kNoGain))
      cuda::load8(p.codes_gain_element, p.codes_gain,
                  planted(Fault::kNeighboursGain) && channel > 0 ? channel - 8 : channel, code);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (p.w_scale != nullptr) factor[i] *= p.w_scale[(channel + i) * p.w_scale_stride];
      bias[i] *= half;
      gain[i] *= unit;
      code[i] *= code_unit;
    }
  }
};

// Types are known at run time only, and asked for once per eight numbers, not per pair: a branch that all lanes take
// together costs less than what it would keep from being interleaved.
__device__ __forceinline__ void add_residual(Element e, float (&v)[8], const uint4& residual) {
  const uint32_t pairs[4] = {residual.x, residual.y, residual.z, residual.w};
  const auto add = [&](auto decode) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = decode(pairs[i]);
      v[2 * i] += two.x, v[2 * i + 1] += two.y;
    }
  };
  if (e == Element::f16) return add([](uint32_t pair) { return cuda::decode_half_pair(pair); });
  add([](uint32_t pair) { return cuda::decode_bf16_pair(pair); });
}

// Eight neighbouring numbers of a row of y. Contract: aligned to their size.
__device__ __forceinline__ void store_numbers(Element e, void* y, int64_t index, const float (&v)[8]) {
  const auto halves = [&](auto pack) {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(y) + index) = {pack(v[0], v[1]), pack(v[2], v[3]),
                                                                    pack(v[4], v[5]), pack(v[6], v[7])};
  };
  const auto bytes = [&](auto pack) {
    const uint32_t pairs[4] = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
    *reinterpret_cast<uint2*>(static_cast<uint8_t*>(y) + index) = {pairs[0] | pairs[1] << 16,
                                                                   pairs[2] | pairs[3] << 16};
  };
  switch (e) {
    case Element::f16:
      return halves([](float a, float b) { return cuda::pack_pair<__half>(a, b); });
    case Element::bf16:
      return halves([](float a, float b) { return cuda::pack_pair<__nv_bfloat16>(a, b); });
    case Element::e4m3:
      return bytes([](float a, float b) { return cuda::encode_e4m3_pair(a, b); });
    case Element::i8:
      return bytes([](float a, float b) { return cuda::encode_i8_pair(a, b); });
    default:
      break;
  }
  float4* to = reinterpret_cast<float4*>(static_cast<float*>(y) + index);
  to[0] = {v[0], v[1], v[2], v[3]}, to[1] = {v[4], v[5], v[6], v[7]};
}

template <class Sum>
__device__ __forceinline__ Sum as_sum(uint32_t word) {
  if constexpr (std::is_same_v<Sum, float>) {
    return __uint_as_float(word);
  } else {
    return static_cast<int32_t>(word);
  }
}

// Who finishes what: eight threads have 64 channels of a token of y, in pieces of 16 tokens.
template <SwappedKind kKind>
struct SwappedPlace {
  static constexpr bool kGated = kKind == SwappedKind::kGated;
  int row;                // the thread's token of the first piece, within the block's
  int rows, first_token;  // tokens that this block finishes
  int block_channel, channel;
  bool multiplied;  // of a gate: the first four of eight threads have its arguments, the others what it multiplies

  __device__ __forceinline__ SwappedPlace(const SwappedParams& p, int of_block, int first, int count)
      : row(static_cast<int>(threadIdx.x) / 8),
        rows(count),
        first_token(first),
        block_channel(of_block),
        multiplied(kGated && threadIdx.x % 8 >= 4) {
    const int thread = static_cast<int>(threadIdx.x);
    channel = kGated                         ? of_block / 2 + thread % 4 * 8
              : kKind == SwappedKind::kHeads ? p.heads.columns.channel_of(of_block, thread % 8)
                                             : of_block + thread % 8 * 8;  // of y
  }
  __device__ __forceinline__ int token(int piece) const { return first_token + row + piece * 16; }
  __device__ __forceinline__ bool exists(const SwappedParams& p, int piece) const {
    return row + piece * 16 < rows && token(piece) < p.m && channel < p.cols && !multiplied;
  }
  __device__ __forceinline__ SwappedColumns<kGated> columns(const SwappedParams& p) const {
    return SwappedColumns<kGated>(p, channel < p.cols ? channel + (multiplied ? p.cols : 0) : p.n, multiplied);
  }
};

// What the program needs of a thread's tokens, all of it under way while the products are made. Contract: the kernels
// or phases that wrote it have ended. Other SMs may have written it since this one last read the same place: it comes
// from the L2.
template <SwappedKind kKind, int kPieces>
struct SwappedTokens {
  uint4 residual[kPieces];
  HeadChannels<kKind == SwappedKind::kHeads, kPieces> heads;
  float factor[kPieces];  // of rows

  __device__ __forceinline__ SwappedTokens(const SwappedParams& p, const SwappedPlace<kKind>& at)
      : heads(p.heads, at.channel, at.first_token + at.row, p.m) {
    if (p.residual != nullptr) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        if (at.exists(p, i))
          residual[i] = __ldcg(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.residual) +
                                                              at.token(i) * p.residual_stride + at.channel));
      }
    }
    if (p.rows.moments != nullptr)
      p.rows.load(planted(Fault::kStaleStatistics) && at.token(0) > 0 ? at.token(0) - 1 : at.token(0), 16, p.m, factor);
  }
};

// Sums of the thread's own channel pairs, where others find them by token and channel (sums_word).
template <class Sum, int kTokens>
__device__ __forceinline__ void leave_sums(const Sum (&d)[kTokens / 2], Sum* sums) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i)
    sums[sums_word(i / 4 * 8 + result_col(thread) + i % 2, turn_pairs32(result_row(thread) + i / 2 % 2 * 8))] = d[i];
}

// The thread's eight channels of each piece, of one slice's sums. kFar: other SMs wrote them to device memory.
template <class Sum, int kPieces, bool kFirst, bool kFar = false>
__device__ __forceinline__ void take_sums(const uint8_t* from, int row, int rows, Sum (&v)[kPieces][8]) {
#pragma unroll
  for (int half = 0; half < kPieces * 2; ++half) {
    const int here = min(row + half / 2 * 16, rows - 1);  // a thread without a token reads along
    const auto* at = reinterpret_cast<const uint4*>(from + sums_word(here, threadIdx.x % 8 * 8 + half % 2 * 4) * 4);
    const uint4 q = kFar ? __ldcg(at) : *at;
    const uint32_t four[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      Sum& to = v[half / 2][half % 2 * 4 + j];
      to = kFirst ? as_sum<Sum>(four[j]) : to + as_sum<Sum>(four[j]);
    }
  }
}

// The program on sums, and its results to memory. All lanes of the warp call this.
template <class Sum, SwappedKind kKind, int kPieces>
__device__ __forceinline__ void finish_tokens(const SwappedParams& p, const SwappedPlace<kKind>& at,
                                              const SwappedColumns<kKind == SwappedKind::kGated>& columns,
                                              const SwappedTokens<kKind, kPieces>& tokens, const Sum (&v)[kPieces][8]) {
  constexpr bool kGated = kKind == SwappedKind::kGated;
  float out[kPieces][8];
#pragma unroll
  for (int i = 0; i < kPieces * 8; ++i) {
    float sum = static_cast<float>(v[i / 8][i % 8]);
    if (p.rows.moments != nullptr) sum *= tokens.factor[i / 8];
    out[i / 8][i % 8] = fmaf(sum, columns.factor[i % 8], columns.bias[i % 8]);
  }
  if (p.act.present && !at.multiplied) {
#pragma unroll
    for (int i = 0; i < kPieces * 8; ++i) out[i / 8][i % 8] = p.act(out[i / 8][i % 8]);
  }
  if constexpr (kGated) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPieces * 8; ++i) out[i / 8][i % 8] *= __shfl_xor_sync(0xffffffffu, out[i / 8][i % 8], 4);
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const bool exists = at.exists(p, i);
#pragma unroll
    for (int j = 0; j < 8; ++j) out[i][j] *= columns.gain[j];
    if constexpr (kKind == SwappedKind::kHeads) {
      tokens.heads.turn(i, p.m, out[i]);
      if (exists) tokens.heads.keep(at.token(i), out[i], store_numbers);
    }
    if (p.residual != nullptr) add_residual(p.y_element, out[i], tokens.residual[i]);
    const int64_t index = int64_t{at.token(i)} * p.cols + at.channel;
    if (exists) store_numbers(p.y_element, p.y, index, out[i]);
    if constexpr (!kGated) {
      if (p.codes == nullptr || !exists) continue;
      float codes[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) codes[j] = out[i][j] * columns.code[j];
      store_numbers(p.codes_element, p.codes, index, codes);
    }
  }
  if (p.moments != nullptr) {
    const int groups = (p.n + kSwappedChannels - 1) / kSwappedChannels;
    float2 moments[kPieces];
    cuda::take_moments(out, at.channel < p.n, min(kSwappedChannels, p.n - at.block_channel), moments);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (at.exists(p, i) && threadIdx.x % 8 == 0)
        p.moments[int64_t{at.token(i)} * groups + at.block_channel / kSwappedChannels] = moments[i];
    }
  }
}

template <class In, SwappedKind kKind, int kTokens, int kSplit>
__device__ __forceinline__ void consume_slice(const SwappedParams& p, const SwappedBlock<kTokens>& block) {
  using Sum = SumOf<In>;
  constexpr int kOwn = 1;  // named barrier of the warpgroup
  constexpr int kRows = kTokens / kSplit, kPieces = (kRows + 15) / 16, kSent = sent_bytes({kTokens, kSplit});
  const int thread = threadIdx.x;
  const SwappedPlace<kKind> at(p, block.channel, block.token + block.slice * kRows, kRows);
  // Where the sums lie that slice `from` has sent to slice `to`.
  const auto inbox = [&](int to, int from) { return p.body_bytes + (from < to ? from : from - 1) * kSent; };

  if (p.computed) cuda::wait_for_earlier_kernels();
  const auto columns = at.columns(p);
  cuda::wait_for_earlier_kernels();
  const SwappedTokens<kKind, kPieces> tokens(p, at);

  Sum d[kTokens / 2];
  multiply_slice<In, kTokens>(d, p, block);
  sync_threads(kOwn, 128);  // no thread reads stages any more: sums take their place
  leave_sums<Sum, kTokens>(d, reinterpret_cast<Sum*>(block.bytes));

  if constexpr (kSplit > 1) fence_for_tma();
  sync_threads(kOwn, 128);
  if constexpr (kSplit > 1) {
    if (thread % 32 == 0) {
      for (int to = thread / 32; to < kSplit; to += 4) {
        if (to == block.slice) continue;
        send_to_block(address_in(block.base + inbox(to, block.slice), to), block.base + to * kSent, kSent,
                      address_in(block.received, to));
      }
    }
    __syncwarp();
    wait(block.received, 0);
  }
  __syncwarp();
  if (kSplit > 1) arrive_cluster();  // this block has what the others send

  Sum v[kPieces][8];
#pragma unroll
  for (int i = 0; i < kSplit; ++i) {
    if (planted(Fault::kSliceMissing) && i > 0 && i == kSplit - 1) continue;
    const int s = planted(Fault::kSliceOrder) ? kSplit - 1 - i : i;
    const uint8_t* from = block.bytes + (s == block.slice ? s * kSent : inbox(block.slice, s));
    if (i == 0)
      take_sums<Sum, kPieces, true>(from, at.row, kRows, v);
    else
      take_sums<Sum, kPieces, false>(from, at.row, kRows, v);
  }
  finish_tokens<Sum, kKind, kPieces>(p, at, columns, tokens, v);
}

// Two barriers of the cluster, the same in every thread of every block: at the start, so that all have set up what
// others send to; and before a block ends, when all have received what it sends.
template <class In, SwappedKind kKind, int kTokens>
__global__ void __launch_bounds__(kSwappedThreads, 2)
    multiply_swapped(const __grid_constant__ SwappedMaps maps, const __grid_constant__ SwappedParams p) {
  cuda::let_next_kernel_start();
  extern __shared__ __align__(1024) uint8_t shared[];  // kSwizzleAtomBytes
  const SwappedBlock<kTokens> block(p, shared);
  const bool loader = threadIdx.x == 128, clustered = p.shape.split > 1;
  if (loader) begin_loads<In, kKind>(maps, p, block);
  __syncwarp();
  if (clustered) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if (threadIdx.x >= 128) {
    if (loader) finish_loads<In, kKind>(maps, p, block);
    __syncwarp();
    if (clustered) arrive_cluster();
  } else {
    switch (p.shape.split) {
      case 8:
        consume_slice<In, kKind, kTokens, 8>(p, block);
        break;
      case 4:
        consume_slice<In, kKind, kTokens, 4>(p, block);
        break;
      case 2:
        consume_slice<In, kKind, kTokens, 2>(p, block);
        break;
      default:
        consume_slice<In, kKind, kTokens, 1>(p, block);
        break;
    }
    __syncwarp();
  }
  if (clustered) wait_cluster();
}

}  // namespace tessera::sm90
