// SPDX-License-Identifier: Apache-2.0
// Attention in one kernel for f16 and bf16: scores never leave the chip. A block takes 64 or 128 queries of one head
// and walks over the keys in tiles; a warp holds 16 or 32 rows of scores and results in registers and keeps the running
// maximum and sum of each row (fp32). Tiles of K and V arrive by asynchronous copies, the next one while this one is
// multiplied. Only tiles at an edge (tail, causal, bias) pay for masks.
#include <algorithm>
#include <cmath>

#include "archs/cuda/fragments.h"
#include "base/buffer.h"
#include "ops/attention/attention.h"
#include "ops/attention/emulate.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/sums.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "attention/cuda_f16";
constexpr int kWarps = 4;

bool strides_fit(const Shape& strides) {
  return strides[3] == 1 && std::all_of(strides.begin(), strides.end() - 1, [](int64_t s) { return s % 8 == 0; });
}

Verdict accepts(const Problem& p) {
  const AttentionProblem a = AttentionProblem::of(p);
  TS_REQUIRE(a.q == QuantType(Element::f16) || a.q == QuantType(Element::bf16), "multiplies f16 or bf16, not ",
             to_string(a.q));
  TS_REQUIRE(a.k == a.q && a.v == a.q, "q, k and v must be of one type; they are ", to_string(a.q), ", ",
             to_string(a.k), ", ", to_string(a.v));
  TS_REQUIRE(is_device_number(a.y) && a.y.element != Element::f32,
             "writes f16, bf16, or e4m3 with one static f32 scale, not ", to_string(a.y));
  TS_REQUIRE(a.then->within(kCodesOnly), kCodesOnly.says_in_order());
  TS_REQUIRE(!a.p, "does not round the softmax, asked for in ", to_string(*a.p), "; attention/cpu does");
  TS_REQUIRE(
      a.head_size % 8 == 0 && a.value_size % 8 == 0, "head sizes must be multiples of 8 (16-byte rows), they are ",
      a.head_size, " and ", a.value_size,
      ": pad the heads of q, k and v with zeros to a multiple of 8 in the model, or build with --precision fp32");
  TS_REQUIRE(std::max(a.head_size, a.value_size) <= 256, "a head has at most 256 columns, not ",
             std::max(a.head_size, a.value_size), ": more heads of fewer columns, or --target cpu, which has no limit");
  TS_REQUIRE(strides_fit(a.q_strides) && strides_fit(a.k_strides) && strides_fit(a.v_strides),
             "rows of q, k and v must be contiguous and start at multiples of 8 elements");
  TS_REQUIRE(std::isfinite(a.scale) && a.scale > 0, "scale must be positive: the row maximum is taken before scaling");
  TS_REQUIRE(!a.has_bias || is_device_float(p.in[3].type), "bias must be f32, f16 or bf16");
  TS_REQUIRE(a.queries < (1 << 30) && a.keys < (1 << 30) &&
                 a.batch * a.heads * divide_up(a.queries, 16 * kWarps) <= kMaxDeviceElements,
             "too many queries for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem& p) {
  const bool f16 = p.in[0].type.element == Element::f16;
  return {.computed = f16 ? Element::f16 : Element::bf16,
          .instruction = "mma.sync m16n8k16 (HMMA), f32 sums",
          .accumulator_bits = 23,                    // tensor cores truncate where they align addends
          .operand_error = f16 ? 0x1p-11 : 0x1p-8};  // probabilities are rounded before they are multiplied with v
}

// Which GPU it will be is not known: scores are loose by what its tensor cores may add up otherwise.
Emulation emulate(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  const AttentionProblem a = AttentionProblem::of(problem);
  const int64_t columns = std::max(a.head_size, a.value_size);
  return emulate_attention(problem, in, out,
                           {.core = &kMmaHalf,
                            .block = columns <= 64    ? 48
                                     : columns <= 128 ? 64
                                                      : 32,
                            .loose = 0x1p-21});
}

#ifdef __CUDACC__

constexpr float kLog2e = 1.44269504088896341f;

struct Args {
  const void *q, *k, *v, *bias;
  DeviceTensor y;
  int64_t q_batch, q_token, q_head, k_batch, k_token, k_head, v_batch, v_token, v_head;  // strides, in elements
  int64_t bias_batch, bias_head, bias_query, bias_key;
  int queries, keys, value_size;
  int head_chunks, value_chunks;  // of 8 columns
  FastDivide tiles, heads, heads_per_kv;
  Element bias_element;
  const int32_t* lengths;    // null: all keys are valid
  int length_stride, fresh;  // elements between batch items; new keys
  bool causal;
  float scale;        // of the scores: to units of log2 or, with a bias, to their own
  float score_scale;  // what is left of it after the bias step: `scale`, or 1
};

// kHead: columns in shared memory and registers, at least head_size and value_size. kTiles: blocks of 16 rows per warp.
// kKeys: keys per tile. kQueriesInRegisters: q's fragments are loaded once; for wide heads they would not fit beside
// the results.
template <class HalfT, int kHeadT, int kTilesT, int kKeysT, bool kQueriesInRegistersT, int kBlocksPerSmT>
struct Config {
  using Half = HalfT;
  using Tile = cuda::PaddedTile<kHeadT>;
  static constexpr int kHead = kHeadT, kTiles = kTilesT, kKeys = kKeysT, kBlocksPerSm = kBlocksPerSmT;
  static constexpr bool kQueriesInRegisters = kQueriesInRegistersT;
  static constexpr int kQueries = kWarps * 16 * kTiles;
  static constexpr int kKeyBytes = Tile::bytes(kKeys);
  static constexpr int kSharedBytes = Tile::bytes(kQueries) + 4 * kKeyBytes;  // q; two stages of k and v
  // Wide heads: leave out blocks of 16 columns that head_size does not reach.
  static constexpr bool kSkipColumns = kHead > 64;
};

template <class C>
struct Registers {
  float o[C::kTiles][C::kHead / 8][4] = {};    // results, not yet divided by the sum
  float top[C::kTiles][2], sum[C::kTiles][2];  // of rows lane / 4 and lane / 4 + 8; sum: of this lane's columns only
  uint32_t q[C::kTiles][C::kQueriesInRegisters ? C::kHead / 16 : 1][4];
};

__device__ __forceinline__ ValidKeys<int> keys_of(const Args& p, uint32_t batch) {
  if (p.lengths == nullptr) return all_keys(p.keys);
  return valid_keys(p.lengths[batch * p.length_stride], p.keys, p.fresh);
}

// kRows rows of kHead columns to shared memory; rows and chunks that do not exist become zeros.
template <class C, int kRows>
__device__ __forceinline__ void copy_rows(uint32_t to, const typename C::Half* from, int64_t stride, int rows,
                                          int chunks) {
  constexpr int kChunks = C::kHead / 8, kThreads = 32 * kWarps;
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x), row = at / kChunks, chunk = at % kChunks;
    const bool there = row < rows && chunk < chunks;
    cuda::copy_async_16(to + C::Tile::offset_bytes(row, chunk), there ? from + row * stride + chunk * 8 : from,
                        there ? 16 : 0);
  }
}

// Scores with the bias added (ops/attention/attention.h). query, key: of this lane's first cell; its others are 8 rows
// and 1 and 8 columns on.
template <class C>
__device__ __forceinline__ void add_bias(const Args& p, const ValidKeys<int>& keys,
                                         float (&s)[C::kTiles][C::kKeys / 8][4], int64_t at, int query, int key) {
#pragma unroll
  for (int t = 0; t < C::kTiles; ++t) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = query + 16 * t + 8 * h;
      if (row >= p.queries) continue;
      const int64_t row_at = at + row * p.bias_query;
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& v = s[t][j][2 * h + i];
          const int col = key + 8 * j + i;
          if (col < keys.all)
            v = fmaf(v, p.scale, cuda::load_one(p.bias_element, p.bias, row_at + keys.bias_column(col) * p.bias_key));
        }
      }
    }
  }
}

// One tile of keys, for one warp. kMasked: some keys or pairs may not take part, or there is a bias.
template <class C, bool kMasked>
__device__ __forceinline__ void attend_tile(const Args& p, Registers<C>& r, uint32_t q_shared, uint32_t k_shared,
                                            uint32_t v_shared, const ValidKeys<int>& keys, int first_query,
                                            int first_key, int last_key, int64_t bias_at, int lane) {
  constexpr int kTiles = C::kTiles, kKeys = C::kKeys;
  const int valid = last_key - first_key;  // keys from here on that any row of the block sees
  const cuda::Cell a_from = cuda::a_source(lane), k_from = cuda::b_source_by_column(lane),
                   v_from = cuda::b_source_by_row(lane);

  float s[kTiles][kKeys / 8][4] = {};
#pragma unroll
  for (int step = 0; step < C::kHead / 16; ++step) {
    if (C::kSkipColumns && 2 * step >= p.head_chunks) break;
    uint32_t a[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if constexpr (C::kQueriesInRegisters) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[t][i] = r.q[t][step][i];
      } else {
        cuda::load_matrices(a[t], q_shared + C::Tile::offset_bytes(16 * t + a_from.row, 2 * step + a_from.col));
      }
    }
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      if (kMasked && 16 * j >= valid) continue;
      uint32_t b[4];
      cuda::load_matrices(b, k_shared + C::Tile::offset_bytes(16 * j + k_from.row, 2 * step + k_from.col));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        cuda::multiply_add<typename C::Half>(s[t][2 * j], a[t], b[0], b[1]);
        cuda::multiply_add<typename C::Half>(s[t][2 * j + 1], a[t], b[2], b[3]);
      }
    }
  }

  if constexpr (kMasked) {
    const cuda::Cell corner = cuda::accumulator_cell(lane, 0);
    if (p.bias != nullptr) add_bias<C>(p, keys, s, bias_at, first_query + corner.row, first_key + corner.col);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int query = first_query + corner.row + 16 * t + 8 * h;
        const int seen = keys.seen_by(query, p.queries, p.causal) - first_key - corner.col;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
          if (8 * j >= seen) s[t][j][2 * h] = -INFINITY;
          if (8 * j + 1 >= seen) s[t][j][2 * h + 1] = -INFINITY;
        }
      }
    }
  }

  const bool biased = kMasked && p.bias != nullptr;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = s[t][0][2 * h];
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) top = fmaxf(top, fmaxf(s[t][j][2 * h], s[t][j][2 * h + 1]));
      top = fmaxf(r.top[t][h], cuda::max_across_quad(top) * p.score_scale);
      // A row that has seen no key yet must not compute -inf - -inf.
      const float base = kMasked && top == -INFINITY ? 0.0f : top;
      const float shrink = cuda::exp2_fast((r.top[t][h] - base) * (biased ? kLog2e : 1.0f));
      r.top[t][h] = top;
      float sum = r.sum[t][h] * shrink;
      // With a bias the difference comes first: where f32 lost the scores it is exactly 0.
      const float first = biased ? base : 0.0f, factor = biased ? kLog2e : p.score_scale, last = biased ? 0.0f : base;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          s[t][j][i] = cuda::exp2_fast(fmaf(s[t][j][i] - first, factor, -last));
          sum += s[t][j][i];
        }
      }
      r.sum[t][h] = sum;
#pragma unroll
      for (int n = 0; n < C::kHead / 8; ++n) {
        r.o[t][n][2 * h] *= shrink;
        r.o[t][n][2 * h + 1] *= shrink;
      }
    }
  }

#pragma unroll
  for (int j = 0; j < kKeys / 16; ++j) {
    if (kMasked && 16 * j >= valid) continue;
    // The accumulator's cells of two neighbouring tiles are the cells of an A operand: probabilities go on without
    // leaving their lanes.
    uint32_t a[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[t][i] =
            cuda::pack_pair<typename C::Half>(s[t][2 * j + i / 2][2 * (i % 2)], s[t][2 * j + i / 2][2 * (i % 2) + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < C::kHead / 16; ++n) {
      if (C::kSkipColumns && 2 * n >= p.value_chunks) break;
      uint32_t b[4];
      cuda::load_matrices_transposed(b, v_shared + C::Tile::offset_bytes(16 * j + v_from.row, 2 * n + v_from.col));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        cuda::multiply_add<typename C::Half>(r.o[t][2 * n], a[t], b[0], b[1]);
        cuda::multiply_add<typename C::Half>(r.o[t][2 * n + 1], a[t], b[2], b[3]);
      }
    }
  }
}

// Divides by the sums, then through shared memory (the warp's own rows of q, no longer needed) into whole chunks of 8
// columns.
template <class C>
__device__ __forceinline__ void store_rows(const Args& p, Registers<C>& r, uint8_t* rows_shared, int first_query,
                                           int64_t y_at, int64_t y_token, int lane) {
  const float to_code = cuda::inverse_scale_of(p.y);
  const bool bytes = p.y.element == Element::e4m3;
  __syncwarp();
#pragma unroll
  for (int t = 0; t < C::kTiles; ++t) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = cuda::sum_across_quad(r.sum[t][h]);
      const float factor = sum == 0.0f ? 0.0f : to_code * cuda::reciprocal_fast(sum);  // no key at all: 0
      const cuda::Cell cell = cuda::accumulator_cell(lane, 2 * h);
      uint8_t* row = rows_shared + C::Tile::offset_bytes(16 * t + cell.row, 0);
#pragma unroll
      for (int n = 0; n < C::kHead / 8; ++n) {
        const float low = r.o[t][n][2 * h] * factor, high = r.o[t][n][2 * h + 1] * factor;
        const int col = 8 * n + cell.col;
        if (bytes) {
          *reinterpret_cast<uint16_t*>(row + col) = static_cast<uint16_t>(cuda::encode_e4m3_pair(low, high));
        } else {
          *reinterpret_cast<uint32_t*>(row + 2 * col) = p.y.element == Element::f16
                                                            ? cuda::pack_pair<__half>(low, high)
                                                            : cuda::pack_pair<__nv_bfloat16>(low, high);
        }
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = C::kHead / 8;
#pragma unroll 4
  for (int i = lane; i < 16 * C::kTiles * kChunks; i += 32) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (first_query + row >= p.queries || chunk >= p.value_chunks) continue;
    const uint8_t* from = rows_shared + C::Tile::offset_bytes(row, 0);
    const int64_t at = y_at + row * y_token + chunk * 8;
    if (bytes) {
      *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.y.data) + at) =
          *reinterpret_cast<const uint2*>(from + 8 * chunk);
    } else {
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.y.data) + at) =
          *reinterpret_cast<const uint4*>(from + 16 * chunk);
    }
  }
}

extern __shared__ __align__(16) uint8_t attention_shared[];

template <class C>
__global__ void __launch_bounds__(32 * kWarps, C::kBlocksPerSm) attend(const __grid_constant__ Args p) {
  using Half = typename C::Half;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t item = p.tiles.quotient(blockIdx.x), batch = p.heads.quotient(item);
  const uint32_t head = item - batch * p.heads.divisor, kv_head = p.heads_per_kv.quotient(head);
  const int block_query = static_cast<int>(blockIdx.x - item * p.tiles.divisor) * C::kQueries,
            first_query = block_query + warp * 16 * C::kTiles;

  const Half* q = static_cast<const Half*>(p.q) + batch * p.q_batch + head * p.q_head + block_query * p.q_token;
  const Half* k = static_cast<const Half*>(p.k) + batch * p.k_batch + kv_head * p.k_head;
  const Half* v = static_cast<const Half*>(p.v) + batch * p.v_batch + kv_head * p.v_head;
  const uint32_t q_shared = cuda::shared_address(attention_shared), stages = q_shared + C::Tile::bytes(C::kQueries);

  // Keys that the block's last query sees, and tiles that all of its queries see in full.
  const int last_query = min(block_query + C::kQueries, p.queries) - 1;
  const ValidKeys<int> keys = keys_of(p, batch);
  const int last_key = keys.seen_by(last_query, p.queries, p.causal);
  const int tiles = (last_key + C::kKeys - 1) / C::kKeys;
  const int whole_tiles = p.bias != nullptr ? 0 : keys.seen_by(block_query, p.queries, p.causal) / C::kKeys;
  const auto copy_keys = [&](int tile) {
    const uint32_t to = stages + (tile % 2) * 2 * C::kKeyBytes;
    const int64_t first = int64_t{tile} * C::kKeys;
    const int rows = keys.all - static_cast<int>(first);
    copy_rows<C, C::kKeys>(to, k + first * p.k_token, p.k_token, rows, p.head_chunks);
    copy_rows<C, C::kKeys>(to + C::kKeyBytes, v + first * p.v_token, p.v_token, rows, p.value_chunks);
    cuda::commit_copies();
  };

  copy_rows<C, C::kQueries>(q_shared, q, p.q_token, p.queries - block_query, p.head_chunks);
  copy_keys(0);

  Registers<C> r;
#pragma unroll
  for (int t = 0; t < C::kTiles; ++t) {
    r.top[t][0] = r.top[t][1] = -INFINITY;
    r.sum[t][0] = r.sum[t][1] = 0.0f;
  }
  const uint32_t warp_q = q_shared + C::Tile::offset_bytes(warp * 16 * C::kTiles, 0);
  const bool working = first_query < p.queries;  // a warp without rows still copies and waits
  const int64_t bias_at = batch * p.bias_batch + head * p.bias_head;

  for (int tile = 0; tile < tiles; ++tile) {
    // After the barrier this tile is here for all threads, and no thread reads the other stage any more.
    cuda::wait_copies<0>();
    __syncthreads();
    if (tile + 1 < tiles) copy_keys(tile + 1);
    if (!working) continue;
    if constexpr (C::kQueriesInRegisters) {
      if (tile == 0) {
        const cuda::Cell from = cuda::a_source(lane);
#pragma unroll
        for (int t = 0; t < C::kTiles; ++t) {
#pragma unroll
          for (int step = 0; step < C::kHead / 16; ++step) {
            cuda::load_matrices(r.q[t][step], warp_q + C::Tile::offset_bytes(16 * t + from.row, 2 * step + from.col));
          }
        }
      }
    }
    const uint32_t k_shared = stages + (tile % 2) * 2 * C::kKeyBytes, v_shared = k_shared + C::kKeyBytes;
    if (tile < whole_tiles) {
      attend_tile<C, false>(p, r, warp_q, k_shared, v_shared, keys, first_query, tile * C::kKeys, last_key, bias_at,
                            lane);
    } else {
      attend_tile<C, true>(p, r, warp_q, k_shared, v_shared, keys, first_query, tile * C::kKeys, last_key, bias_at,
                           lane);
    }
  }
  if (tiles == 0) {  // no key at all: results take the place of queries that may still be on their way
    cuda::wait_copies<0>();
    __syncthreads();
  }
  if (!working) return;
  const int64_t y_token = int64_t{p.heads.divisor} * p.value_size;
  const int64_t y_at = (int64_t{batch} * p.queries + first_query) * y_token + int64_t{head} * p.value_size;
  store_rows<C>(p, r, attention_shared + C::Tile::offset_bytes(warp * 16 * C::kTiles, 0), first_query, y_at, y_token,
                lane);
}

class HalfAttention final : public Kernel {
 public:
  explicit HalfAttention(const Problem& p) : problem_(p), a_(AttentionProblem::of(problem_)) {}

  Status prepare() {
    return with_config([&]<class C>(C) { return cuda::allow_shared_memory(kName, attend<C>, C::kSharedBytes); });
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (a_.batch * a_.queries * a_.heads * a_.value_size == 0) return {};
    for (const void* p : {in[0].data, in[1].data, in[2].data, out[0].data}) {
      if (!is_aligned(p, 16)) return machine_error(cat(kName, ": an operand does not start at a multiple of 16 bytes"));
    }
    Args p{.q = in[0].data,
           .k = in[1].data,
           .v = in[2].data,
           .bias = a_.has_bias ? in[3].data : nullptr,
           .y = device_tensor(out[0])};
    p.q_batch = a_.q_strides[0], p.q_token = a_.q_strides[1], p.q_head = a_.q_strides[2];
    p.k_batch = a_.k_strides[0], p.k_token = a_.k_strides[1], p.k_head = a_.k_strides[2];
    p.v_batch = a_.v_strides[0], p.v_token = a_.v_strides[1], p.v_head = a_.v_strides[2];
    if (a_.has_bias) {
      p.bias_batch = a_.bias_strides[0], p.bias_head = a_.bias_strides[1], p.bias_query = a_.bias_strides[2],
      p.bias_key = a_.bias_strides[3];
      p.bias_element = in[3].desc->type.element;
    }
    if (a_.has_lengths) {
      p.lengths = static_cast<const int32_t*>(in[4].data);
      p.length_stride = static_cast<int>(a_.length_stride), p.fresh = static_cast<int>(a_.fresh);
    }
    p.queries = static_cast<int>(a_.queries);
    p.keys = static_cast<int>(a_.keys);
    p.value_size = static_cast<int>(a_.value_size);
    p.head_chunks = static_cast<int>(a_.head_size / 8);
    p.value_chunks = static_cast<int>(a_.value_size / 8);
    p.heads = FastDivide(static_cast<uint32_t>(a_.heads));
    p.heads_per_kv = FastDivide(static_cast<uint32_t>(a_.heads / a_.kv_heads));
    p.causal = a_.causal;
    p.scale = static_cast<float>(a_.has_bias ? a_.scale : a_.scale * 1.44269504088896341);
    p.score_scale = a_.has_bias ? 1.0f : p.scale;
    return with_config([&]<class C>(C) {
      const int64_t tiles = divide_up(a_.queries, C::kQueries);
      p.tiles = FastDivide(static_cast<uint32_t>(tiles));
      return cuda::launch_kernel(kName, attend<C>, a_.batch * a_.heads * tiles, 32 * kWarps, C::kSharedBytes,
                                 stream.handle, p);
    });
  }

 private:
  template <class Half, class Fn>
  Status with_half(Fn fn) {
    const int64_t columns = std::max(a_.head_size, a_.value_size);
    if (columns <= 64) return fn(Config<Half, 64, 2, 48, true, 2>());
    if (columns <= 128) return fn(Config<Half, 128, 1, 64, true, 2>());
    return fn(Config<Half, 256, 1, 32, false, 2>());
  }
  template <class Fn>
  Status with_config(Fn fn) {
    return a_.q.element == Element::f16 ? with_half<__half>(fn) : with_half<__nv_bfloat16>(fn);
  }

  const Problem problem_;
  const AttentionProblem a_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  auto kernel = std::make_unique<HalfAttention>(p);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& attention_cuda_f16() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .emulate = emulate,
                                .operand_align = 16,
                                .sass = shows({"HMMA", "LDSM", "LDGSTS"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
