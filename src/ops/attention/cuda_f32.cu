// SPDX-License-Identifier: Apache-2.0
// Attention in fp32, for plans that ask for it: no tensor cores. A block takes 32 queries of one head, a warp 8 of
// them; keys come in tiles of 32, one per lane. Scores: lane = key, queries broadcast from shared memory. Results: lane
// = column, probabilities broadcast. Any strides with a contiguous last axis, any sizes.
#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "ops/attention/attention.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/sums.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "attention/cuda_f32";
constexpr int kWarps = 4, kRows = 8, kQueries = kWarps * kRows, kKeys = 32;

Verdict accepts(const Problem& p) {
  const AttentionProblem a = AttentionProblem::of(p);
  TS_REQUIRE(a.q == QuantType(Element::f32) && a.k == a.q && a.v == a.q, "multiplies f32, not ", to_string(a.q), ", ",
             to_string(a.k), ", ", to_string(a.v));
  TS_REQUIRE(is_device_number(a.y), "writes f32, f16, bf16, or e4m3 with one static f32 scale, not ", to_string(a.y));
  TS_REQUIRE(a.then->within(kCodesOnly), kCodesOnly.says_in_order());
  TS_REQUIRE(!a.p, "does not round the softmax, asked for in ", to_string(*a.p), "; attention/cpu does");
  TS_REQUIRE(std::max(a.head_size, a.value_size) <= 256, "a head has at most 256 columns, not ",
             std::max(a.head_size, a.value_size), ": more heads of fewer columns, or --target cpu, which has no limit");
  for (const Shape* s : {&a.q_strides, &a.k_strides, &a.v_strides})
    TS_REQUIRE((*s)[3] == 1, "the last axis of q, k and v must be contiguous");
  TS_REQUIRE(std::isfinite(a.scale) && a.scale > 0, "scale must be positive: the row maximum is taken before scaling");
  TS_REQUIRE(!a.has_bias || is_device_float(p.in[3].type), "bias must be f32, f16 or bf16");
  TS_REQUIRE(a.queries < (1 << 30) && a.keys < (1 << 30) &&
                 a.batch * a.heads * divide_up(a.queries, kQueries) <= kMaxDeviceElements,
             "too many queries for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  // 2^x by the special function unit: 2 ulp.
  return {.computed = Element::f32, .instruction = "FMA (FFMA)", .accumulator_bits = 24, .operand_error = 0x1p-21};
}

// Floats between rows of q and k in shared memory: an odd number of 16-byte units, so that 8 lanes reading 8 rows touch
// 8 different groups of banks.
constexpr int row_floats(int columns) { return (((columns + 3) / 4) | 1) * 4; }
constexpr int shared_floats(int head, int value) {
  return (kQueries + kKeys) * row_floats(head) + kKeys * value + kQueries * kKeys;
}

#ifdef __CUDACC__

constexpr double kLog2e = 1.44269504088896341;

struct Args {
  const float *q, *k, *v;
  const void* bias;
  DeviceTensor y;
  int64_t q_batch, q_token, q_head, k_batch, k_token, k_head, v_batch, v_token, v_head;  // strides, in elements
  int64_t bias_batch, bias_head, bias_query, bias_key;
  int queries, keys, head_size, value_size;
  FastDivide tiles, heads, heads_per_kv;
  Element bias_element;
  const int32_t* lengths;    // null: all keys are valid
  int length_stride, fresh;  // elements between batch items; new keys
  bool causal;
  float scale, unit;  // of the scores: to units of log2, and 1; with a bias: to their own units, and log2(e)
};

// `count` rows of `columns` to shared memory rows of `stride`, a warp per row; what does not exist, and up to `padded`
// columns, becomes zeros.
__device__ __forceinline__ void copy_rows(float* to, int stride, int count, int padded, const float* from,
                                          int64_t from_stride, int rows, int columns) {
  for (int row = threadIdx.x / 32; row < count; row += kWarps) {
    for (int c = threadIdx.x % 32; c < padded; c += 32)
      to[row * stride + c] = row < rows && c < columns ? from[row * from_stride + c] : 0.0f;
  }
}

__device__ __forceinline__ ValidKeys<int> keys_of(const Args& p, uint32_t batch) {
  if (p.lengths == nullptr) return all_keys(p.keys);
  return valid_keys(p.lengths[batch * p.length_stride], p.keys, p.fresh);
}

extern __shared__ __align__(16) float attention_floats[];

// kColumns: columns of the result per lane; 32 * kColumns >= value_size.
template <int kColumns>
__global__ void __launch_bounds__(32 * kWarps) attend_f32(const __grid_constant__ Args p) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t item = p.tiles.quotient(blockIdx.x), batch = p.heads.quotient(item);
  const uint32_t head = item - batch * p.heads.divisor, kv_head = p.heads_per_kv.quotient(head);
  const int block_query = static_cast<int>(blockIdx.x - item * p.tiles.divisor) * kQueries,
            first_query = block_query + warp * kRows;
  const float* q = p.q + batch * p.q_batch + head * p.q_head + block_query * p.q_token;
  const float* k = p.k + batch * p.k_batch + kv_head * p.k_head;
  const float* v = p.v + batch * p.v_batch + kv_head * p.v_head;

  const int stride = row_floats(p.head_size), padded = (p.head_size + 3) / 4 * 4;
  float* const q_shared = attention_floats;
  float* const k_shared = q_shared + kQueries * stride;
  // This warp's probabilities, a row per query.
  float* const p_shared = k_shared + kKeys * stride + warp * kRows * kKeys;
  float* const v_shared = k_shared + kKeys * stride + kQueries * kKeys;

  copy_rows(q_shared, stride, kQueries, padded, q, p.q_token, p.queries - block_query, p.head_size);
  float o[kRows][kColumns] = {}, top[kRows], sum[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    top[r] = -INFINITY;
    sum[r] = 0.0f;
  }
  const int last_query = min(block_query + kQueries, p.queries) - 1;
  const ValidKeys<int> keys = keys_of(p, batch);
  const int last_key = keys.seen_by(last_query, p.queries, p.causal);
  for (int first_key = 0; first_key < last_key; first_key += kKeys) {
    __syncthreads();  // no thread reads the previous tile any more
    copy_rows(k_shared, stride, kKeys, padded, k + first_key * p.k_token, p.k_token, keys.all - first_key, p.head_size);
    copy_rows(v_shared, p.value_size, kKeys, p.value_size, v + first_key * p.v_token, p.v_token, keys.all - first_key,
              p.value_size);
    __syncthreads();

    float s[kRows] = {};
    for (int d = 0; d < padded; d += 4) {
      const float4 kd = *reinterpret_cast<const float4*>(k_shared + lane * stride + d);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 qd = *reinterpret_cast<const float4*>(q_shared + (warp * kRows + r) * stride + d);
        s[r] = fmaf(qd.x, kd.x, fmaf(qd.y, kd.y, fmaf(qd.z, kd.z, fmaf(qd.w, kd.w, s[r]))));
      }
    }
    const int key = first_key + lane;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int query = first_query + r;
      float score = s[r] * p.scale;
      if (p.bias != nullptr && key < keys.all && query < p.queries) {
        const int64_t at =
            batch * p.bias_batch + head * p.bias_head + query * p.bias_query + keys.bias_column(key) * p.bias_key;
        score = fmaf(s[r], p.scale, cuda::load_one(p.bias_element, p.bias, at));
      }
      if (key >= keys.seen_by(query, p.queries, p.causal)) score = -INFINITY;
      const float higher = fmaxf(top[r], cuda::across_warp<cuda::Max>(score));
      // A row that has seen no key yet must not compute -inf - -inf.
      const float base = higher == -INFINITY ? 0.0f : higher;
      const float shrink = cuda::exp2_fast((top[r] - base) * p.unit),
                  probability = cuda::exp2_fast((score - base) * p.unit);
      top[r] = higher;
      sum[r] = fmaf(sum[r], shrink, probability);
      p_shared[r * kKeys + lane] = probability;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) o[r][c] *= shrink;
    }
    __syncwarp();
    for (int j = 0; j < kKeys; j += 4) {
      float vj[4][kColumns];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          vj[i][c] = lane + 32 * c < p.value_size ? v_shared[(j + i) * p.value_size + lane + 32 * c] : 0.0f;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 pj = *reinterpret_cast<const float4*>(p_shared + r * kKeys + j);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          o[r][c] = fmaf(pj.x, vj[0][c], fmaf(pj.y, vj[1][c], fmaf(pj.z, vj[2][c], fmaf(pj.w, vj[3][c], o[r][c]))));
        }
      }
    }
    __syncwarp();  // before the next tile's probabilities
  }

  const float to_code = cuda::inverse_scale_of(p.y);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float total = cuda::sum_across_warp(sum[r]);
    if (first_query + r >= p.queries) continue;
    const int64_t at = ((int64_t{batch} * p.queries + first_query + r) * p.heads.divisor + head) * p.value_size;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = lane + 32 * c;
      if (column < p.value_size)
        cuda::store_one(p.y.element, p.y.data, at + column, total == 0.0f ? 0.0f : o[r][c] / total * to_code);
    }
  }
}

class FloatAttention final : public Kernel {
 public:
  explicit FloatAttention(const Problem& p) : problem_(p), a_(AttentionProblem::of(problem_)) {}

  Status prepare() {
    // The widest head's needs, whatever this one's are.
    return with_columns(
        [](auto kernel) { return cuda::allow_shared_memory(kName, kernel, sizeof(float) * shared_floats(256, 256)); });
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (a_.batch * a_.queries * a_.heads * a_.value_size == 0) return {};
    Args p{.q = static_cast<const float*>(in[0].data),
           .k = static_cast<const float*>(in[1].data),
           .v = static_cast<const float*>(in[2].data)};
    p.bias = a_.has_bias ? in[3].data : nullptr;
    p.y = device_tensor(out[0]);
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
    p.head_size = static_cast<int>(a_.head_size);
    p.value_size = static_cast<int>(a_.value_size);
    const int64_t tiles = divide_up(a_.queries, kQueries);
    p.tiles = FastDivide(static_cast<uint32_t>(tiles));
    p.heads = FastDivide(static_cast<uint32_t>(a_.heads));
    p.heads_per_kv = FastDivide(static_cast<uint32_t>(a_.heads / a_.kv_heads));
    p.causal = a_.causal;
    p.scale = static_cast<float>(a_.has_bias ? a_.scale : a_.scale * kLog2e);
    p.unit = a_.has_bias ? static_cast<float>(kLog2e) : 1.0f;
    const size_t bytes = sizeof(float) * static_cast<size_t>(shared_floats(p.head_size, p.value_size));
    return with_columns([&](auto kernel) {
      return cuda::launch_kernel(kName, kernel, a_.batch * a_.heads * tiles, 32 * kWarps, bytes, stream.handle, p);
    });
  }

 private:
  template <class Fn>
  Status with_columns(Fn fn) {
    if (a_.value_size <= 32) return fn(attend_f32<1>);
    if (a_.value_size <= 64) return fn(attend_f32<2>);
    if (a_.value_size <= 128) return fn(attend_f32<4>);
    return fn(attend_f32<8>);
  }

  const Problem problem_;
  const AttentionProblem a_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  auto kernel = std::make_unique<FloatAttention>(p);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& attention_cuda_f32() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"FFMA"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
