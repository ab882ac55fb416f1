// SPDX-License-Identifier: Apache-2.0
// attention/sm90_short: heads of 64 with at most 256 keys, the whole K and V of a head in shared memory. A warpgroup holds all scores of its 64 queries in
// registers, so the softmax is the plain one: no running maximum, no rescaling. One thread loads the next head by TMA while two warpgroups work on this one.
// SASS must: HGMMA
// SASS must not: HMMA
#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "ops/attention/attention.h"
#include "tiles/device_types.h"
#include "tiles/fast_divide.h"

#ifdef __CUDACC__
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "tiles/cuda_elements.cuh"
#include "tiles/cuda_launch.cuh"
#include "tiles/tensor_map.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "attention/sm90_short";
constexpr int kHead = 64, kMaxKeys = 256;

bool strides_fit(const Shape& s) { return s[3] == 1 && s[0] % 8 == 0 && s[1] % 8 == 0 && s[2] % 8 == 0; }

Verdict accepts(const Problem& problem) {
  const AttentionProblem p = AttentionProblem::of(problem);
  TS_REQUIRE(p.q == QuantType(Element::f16) || p.q == QuantType(Element::bf16), "multiplies f16 or bf16, not ", to_string(p.q));
  TS_REQUIRE(p.k == p.q && p.v == p.q, "q, k and v must be of one type");
  TS_REQUIRE(p.y == p.q || p.y == kE4m3PerTensor, "writes the type it reads, or e4m3 with one static scale, not ", to_string(p.y));
  TS_REQUIRE(p.then->within({StepKind::quantize}), "runs no program but quantize");
  TS_REQUIRE(!p.p, "does not round the softmax, asked for in ", to_string(*p.p), "; attention/cpu does");
  TS_REQUIRE(p.head_size == kHead && p.value_size == kHead, "holds heads of 64, not ", p.head_size, "; attention/cuda_f16 takes any multiple of 8 up to 256");
  TS_REQUIRE(p.keys <= kMaxKeys && p.keys > 0, "holds at most 256 keys of a head, here ", p.keys, "; attention/cuda_f16 streams any number");
  TS_REQUIRE(!p.causal && !p.has_bias, "has no causal mask and no bias; attention/cuda_f16 has both");
  TS_REQUIRE(std::isfinite(p.scale) && p.scale > 0, "scale must be positive: the row maximum is taken before scaling");
  TS_REQUIRE(strides_fit(p.q_strides) && strides_fit(p.k_strides) && strides_fit(p.v_strides),
             "rows of q, k and v must be contiguous and start at multiples of 8 elements");
  TS_REQUIRE(p.batch * p.heads < (int64_t{1} << 30) && p.queries < (int64_t{1} << 30), "indices are 32-bit");
  return {};
}

Arithmetic arithmetic(const Problem& p) {
  const bool f16 = p.in[0].type.element == Element::f16;
  return {.computed = f16 ? "fp16" : "bf16",
          .instruction = f16 ? "wgmma fp16 (HGMMA), f32 sums" : "wgmma bf16 (HGMMA), f32 sums",
          .accumulator_bits = 22,
          .operand_error = f16 ? 0x1p-11 : 0x1p-8,  // probabilities are rounded before they are multiplied with v
          .sass_must = "HGMMA",
          .sass_not = "HMMA"};
}

#ifdef __CUDACC__

constexpr int kWarpgroup = 128, kConsumers = 2, kQueryTile = 64;
constexpr int kStages = 2;
constexpr int kMaxQueries = 256;  // of one visit; more queries are further visits with the same keys
constexpr int kTileBytes = kQueryTile * 128;
constexpr float kLog2e = 1.44269504088896341f;

struct Maps {
  CUtensorMap q, k, v, y;
};

struct Params {
  int visits_per_head, visits;  // a visit: up to 256 queries of one head
  int queries, keys;
  FastDivide per_head, heads;
  int heads_per_kv;
  float scale_log2;
  const float* y_scale;  // e4m3 results
};

// kKeys: keys held, a multiple of 16 that is at least the problem's.
template <int kKeys>
struct Stage {
  static constexpr int kQueryBytes = kMaxQueries * 128, kKeyBytes = kKeys * 128;
  static constexpr int kBytes = kQueryBytes + 2 * kKeyBytes;
};

struct Visit {
  int batch, head, first_query;
  __device__ Visit(const Params& p, int index) {
    const uint32_t bh = p.per_head.quotient(index);
    first_query = (index - static_cast<int>(bh) * p.visits_per_head) * kMaxQueries;
    batch = p.heads.quotient(bh);
    head = bh - batch * p.heads.divisor;
  }
};

template <int kKeys>
__device__ void load_heads(const Maps& maps, const Params& p, uint32_t base, uint32_t full, uint32_t empty) {
  using S = Stage<kKeys>;
  int n = 0;
  for (int i = blockIdx.x; i < p.visits; i += gridDim.x, ++n) {
    const Visit at(p, i);
    const int stage = n % kStages, kv_head = at.head / p.heads_per_kv;
    const uint32_t to = base + stage * S::kBytes, barrier = full + stage * 8;
    sm90::wait(empty + stage * 8, (n / kStages & 1) ^ 1);
    const int tiles = min(kMaxQueries / kQueryTile, (p.queries - at.first_query + kQueryTile - 1) / kQueryTile);
    sm90::arrive_expecting(barrier, tiles * kTileBytes + 2 * S::kKeyBytes);
    for (int t = 0; t < tiles; ++t) sm90::load_box(to + t * kTileBytes, &maps.q, 0, at.head, at.first_query + t * kQueryTile, at.batch, barrier);
    sm90::load_box(to + S::kQueryBytes, &maps.k, 0, kv_head, 0, at.batch, barrier);
    sm90::load_box(to + S::kQueryBytes + S::kKeyBytes, &maps.v, 0, kv_head, 0, at.batch, barrier);
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

// One tile of 64 queries. The result takes the place of the queries in shared memory.
template <class Half, bool kFp8Out, int kKeys>
__device__ __forceinline__ void attend(const Params& p, uint32_t q, uint32_t k, uint32_t v, int own) {
  const int thread = threadIdx.x % kWarpgroup, row = sm90::result_row(thread), col = sm90::result_col(thread);
  float s[kKeys / 2];
  sm90::pin(s);
  sm90::begin_products();
  const uint64_t q_desc = sm90::operand_descriptor(q), k_desc = sm90::operand_descriptor(k), v_desc = sm90::operand_descriptor(v);
#pragma unroll
  for (int step = 0; step < kHead / 16; ++step) {
    sm90::Products<Half, kKeys>::shared(s, q_desc + step * sm90::kDescriptorStepK, k_desc + step * sm90::kDescriptorStepK, step > 0);
  }
  sm90::commit_products();
  sm90::wait_products<0>();
  sm90::pin(s);

  // Keys that do not exist were loaded as zeros: out they go. Whole groups of eight before the last 64 keys always exist.
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (j * 8 + col + i % 2 >= p.keys) s[j * 4 + i] = -INFINITY;
      top[i / 2] = fmaxf(top[i / 2], s[j * 4 + i]);
    }
  }
  float sum[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h) top[h] = max_across_quad(top[h]) * p.scale_log2;
  uint32_t probabilities[kKeys / 4];
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float a = cuda::exp2_fast(fmaf(s[j * 4 + h * 2], p.scale_log2, -top[h]));
      const float b = cuda::exp2_fast(fmaf(s[j * 4 + h * 2 + 1], p.scale_log2, -top[h]));
      sum[h] += a + b;
      probabilities[j * 2 + h] = cuda::pack_pair<Half>(a, b);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) sum[h] = 1.0f / sum_across_quad(sum[h]);

  float o[32];
  sm90::pin(o);
  sm90::begin_products();
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    const uint32_t pair[4] = {probabilities[step * 4], probabilities[step * 4 + 1], probabilities[step * 4 + 2], probabilities[step * 4 + 3]};
    sm90::Products<Half, kHead>::registers_by_rows(o, pair, v_desc + step * (16 * 128 >> 4), step > 0);
  }
  sm90::commit_products();
  sm90::wait_products<0>();
  sm90::pin(o);

  sm90::sync_threads(own, kWarpgroup);  // every warp is done with the queries
  const float inverse = kFp8Out ? 1.0f / *p.y_scale : 1.0f;
#pragma unroll
  for (int j = 0; j < kHead / 8; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float a = o[j * 4 + h * 2] * sum[h], b = o[j * 4 + h * 2 + 1] * sum[h];
      const int r = row + h * 8;
      if constexpr (kFp8Out) {
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(q + r * kHead + j * 8 + col),
                     "h"(static_cast<uint16_t>(cuda::encode_e4m3_pair(a * inverse, b * inverse)))
                     : "memory");
      } else {
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(q + sm90::swizzled_offset(r, (j * 8 + col) * 2)), "r"(cuda::pack_pair<Half>(a, b)) : "memory");
      }
    }
  }
}

template <class Half, bool kFp8Out, int kKeys>
__device__ void consume_heads(const Maps& maps, const Params& p, uint32_t base, uint32_t full, uint32_t empty, int consumer) {
  using S = Stage<kKeys>;
  const bool leader = threadIdx.x % kWarpgroup == 0;
  const int own = 1 + consumer;  // named barrier of this warpgroup
  int n = 0;
  for (int i = blockIdx.x; i < p.visits; i += gridDim.x, ++n) {
    const Visit at(p, i);
    const int stage = n % kStages;
    const uint32_t from = base + stage * S::kBytes;
    sm90::wait(full + stage * 8, n / kStages & 1);
    for (int t = consumer; t < kMaxQueries / kQueryTile && at.first_query + t * kQueryTile < p.queries; t += kConsumers) {
      const uint32_t q = from + t * kTileBytes;
      attend<Half, kFp8Out, kKeys>(p, q, from + S::kQueryBytes, from + S::kQueryBytes + S::kKeyBytes, own);
      sm90::fence_for_copy_engine();
      sm90::sync_threads(own, kWarpgroup);
      if (leader) {
        sm90::store_box(&maps.y, 0, at.head, at.first_query + t * kQueryTile, at.batch, q);
        sm90::commit_stores();
      }
    }
    if (leader) {
      sm90::wait_stores_read();  // before the next head may overwrite the place
      sm90::arrive(empty + stage * 8);
    }
  }
}

template <class Half, bool kFp8Out, int kKeys>
__global__ void __launch_bounds__((1 + kConsumers) * kWarpgroup, 1) attend_heads(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
  extern __shared__ uint8_t shared[];
  __shared__ alignas(8) uint64_t barriers[2 * kStages];
  const uint32_t base = (cuda::shared_address(shared) + sm90::kSwizzleAtomBytes - 1) & ~(sm90::kSwizzleAtomBytes - 1);
  const uint32_t full = cuda::shared_address(barriers), empty = full + kStages * 8;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      sm90::init_barrier(full + i * 8, 1);
      sm90::init_barrier(empty + i * 8, kConsumers);
    }
    sm90::fence_barrier_init();
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    sm90::give_registers<24>();
    if (threadIdx.x == 0) load_heads<kKeys>(maps, p, base, full, empty);
  } else {
    sm90::take_registers<240>();
    consume_heads<Half, kFp8Out, kKeys>(maps, p, base, full, empty, warpgroup - 1);
  }
}

using KernelFunction = void (*)(Maps, Params);
struct Picked {
  KernelFunction function;
  int keys;
  size_t shared_bytes;
};
template <class Half, bool kFp8Out, int kKeys>
Picked pick() {
  return {attend_heads<Half, kFp8Out, kKeys>, kKeys, kStages * Stage<kKeys>::kBytes + sm90::kSwizzleAtomBytes};
}
template <class Half, bool kFp8Out>
Picked pick(int64_t keys) {
  if (keys <= 128) return pick<Half, kFp8Out, 128>();
  return keys <= 208 ? pick<Half, kFp8Out, 208>() : pick<Half, kFp8Out, 256>();
}

class ShortKernel final : public Kernel {
 public:
  ShortKernel(const Problem& problem, int processors) : problem_(problem), p_(AttentionProblem::of(problem_)), processors_(processors) {
    const bool fp8 = p_.y.element == Element::e4m3;
    if (p_.q.element == Element::f16) {
      picked_ = fp8 ? pick<__half, true>(p_.keys) : pick<__half, false>(p_.keys);
    } else {
      picked_ = fp8 ? pick<__nv_bfloat16, true>(p_.keys) : pick<__nv_bfloat16, false>(p_.keys);
    }
  }
  Status prepare() { return cuda::allow_shared_memory(kName, picked_.function, picked_.shared_bytes); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.batch * p_.queries * p_.heads == 0) return {};
    const auto map = [&](const TensorView& t, Element e, const Shape& strides, int64_t heads, int64_t tokens, int box_tokens) {
      return cuda::make_tensor_map<4>({t.data, e, {kHead, heads, tokens, p_.batch}, {strides[2], strides[1], strides[0]}, {kHead, 1, box_tokens, 1}, info(e).bits == 16});
    };
    Maps maps;
    TS_ASSIGN(maps.q, map(in[0], p_.q.element, p_.q_strides, p_.heads, p_.queries, kQueryTile));
    TS_ASSIGN(maps.k, map(in[1], p_.k.element, p_.k_strides, p_.kv_heads, p_.keys, picked_.keys));
    TS_ASSIGN(maps.v, map(in[2], p_.v.element, p_.v_strides, p_.kv_heads, p_.keys, picked_.keys));
    TS_ASSIGN(maps.y, map(out[0], p_.y.element, dense_strides({p_.batch, p_.queries, p_.heads, kHead}), p_.heads, p_.queries, kQueryTile));
    const int per_head = static_cast<int>(divide_up(p_.queries, kMaxQueries)), visits = static_cast<int>(p_.batch * p_.heads) * per_head;
    const Params params{.visits_per_head = per_head,
                        .visits = visits,
                        .queries = static_cast<int>(p_.queries),
                        .keys = static_cast<int>(p_.keys),
                        .per_head = FastDivide(static_cast<uint32_t>(per_head)),
                        .heads = FastDivide(static_cast<uint32_t>(p_.heads)),
                        .heads_per_kv = static_cast<int>(p_.heads / p_.kv_heads),
                        .scale_log2 = static_cast<float>(p_.scale) * kLog2e,
                        .y_scale = static_cast<const float*>(out[0].scale)};
    return cuda::launch_kernel(kName, picked_.function, std::min(processors_, visits), (1 + kConsumers) * kWarpgroup, picked_.shared_bytes, stream.handle,
                               maps, params);
  }

 private:
  const Problem problem_;
  const AttentionProblem p_;
  const int processors_;
  Picked picked_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  int device = 0, processors = 0;
  TS_TRY(cuda::cuda_status(kName, cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status(kName, cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
  auto kernel = std::make_unique<ShortKernel>(problem, processors);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#endif

}  // namespace

const Variant& attention_sm90_short() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
