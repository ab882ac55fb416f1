// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_wgmma: persistent, two consumer warpgroups that take turns. While one multiplies its 128 x 128 tile (wgmma, operands by TMA), the other runs
// the program on its finished tile in registers and stores it by TMA: the epilogue costs no tensor-core time as long as it is shorter than the products.
// docs/design/0006 has the measurements.
// SASS must: HGMMA, QGMMA
// SASS must not: HMMA
#include "archs/sm90/fp8.h"
#include "ops/matmul/matmul.h"
#include "tiles/device_types.h"

#ifdef __CUDACC__
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "tiles/cuda_elements.cuh"
#include "tiles/cuda_launch.cuh"
#include "tiles/gelu_fast.h"
#include "tiles/tensor_map.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_wgmma";
constexpr int kTile = 128;  // rows and columns of a tile

bool is_half(Element e) { return e == Element::f16 || e == Element::bf16; }

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(!is_sparse24(problem), kNotSparse);
  const bool fp8 = p.x.element == Element::e4m3;
  TS_REQUIRE(p.batch == 1 && p.constant_w, "multiplies by one constant weight");
  TS_REQUIRE(p.x.element == p.w.element && (fp8 || is_half(p.x.element)), "multiplies f16, bf16 or e4m3 with the same, not ", to_string(p.x), " with ",
             to_string(p.w));
  if (fp8) {
    TS_REQUIRE(p.x == kE4m3PerTensor, "reads e4m3 with one static scale, not ", to_string(p.x));
    TS_REQUIRE(p.w == kE4m3PerTensor || p.w == kE4m3PerChannel, "reads e4m3 weights scaled per tensor or channel, not ", to_string(p.w));
    TS_REQUIRE(p.y == QuantType(Element::f16) || p.y == kE4m3PerTensor, "writes f16 or e4m3 with one static scale, not ", to_string(p.y));
  } else {
    TS_REQUIRE(!p.x.scaled() && !p.w.scaled() && p.y == QuantType(p.x.element), "writes the type it reads, not ", to_string(p.y));
  }
  const int64_t unit = fp8 ? 16 : 8;  // 16 bytes: what the copy engine moves
  TS_REQUIRE(p.k % unit == 0 && p.x_row_stride % unit == 0, "rows of x must be multiples of 16 bytes: k is ", p.k);
  const int64_t out_unit = p.y.element == Element::e4m3 ? 16 : 8;
  TS_REQUIRE(p.n % out_unit == 0, "rows of y must be multiples of 16 bytes: n is ", p.n);
  TS_REQUIRE(p.m < (int64_t{1} << 31) && p.n < (int64_t{1} << 31), "indices are 32-bit");
  TS_REQUIRE(p.then->within({StepKind::bias, StepKind::act, StepKind::scale, StepKind::residual, StepKind::quantize}),
             "runs bias, act, scale, residual, quantize in this order only");
  for (const Step& s : p.then->steps) {
    if (s.kind == StepKind::act) TS_REQUIRE(s.fn == Unary::gelu_erf, "runs no act but gelu_erf, here ", name_of(s.fn));
    if (operand_of(s.kind) == StepOperand::kVector) {
      const Operand& o = problem.step_operand(s);
      TS_REQUIRE(o.type == QuantType(fp8 ? Element::f16 : p.x.element) && o.dense(), "reads vectors of ", fp8 ? "f16" : info(p.x.element).name);
    }
    if (s.kind == StepKind::residual) {
      const Operand& o = problem.step_operand(s);
      const RowView rows = o.rows();
      TS_REQUIRE(o.type == p.y && p.y.element != Element::e4m3, "adds a residual of the result's 16-bit type only");
      TS_REQUIRE(rows.uniform && rows.rows == p.m && rows.row_stride % 8 == 0, "adds a residual with as many rows as the result");
    }
  }
  return {};
}

// A tile is 128 rows and nobody splits K: fewer rows leave most of the chip idle. Where cuBLASLt can run the whole program (no act) it is ahead in 16 bits
// (ViT-B b64, fc2: 90 against 111 us on an H200) and even in FP8 (55 against 57 us, but it needs f16 results).
Verdict worthwhile(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.x.element == Element::e4m3 || p.then->find(StepKind::act) != nullptr, "slower than cuBLASLt in 16 bits without an activation");
  TS_REQUIRE(p.m >= 1024, "slow below 1024 rows, here ", p.m);
  return {};
}

Arithmetic arithmetic(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  if (p.x.element == Element::e4m3) {
    return {.computed = "e4m3",
            .instruction = "wgmma e4m3 (QGMMA), fast accumulation",
            .accumulator_bits = sm90::kFp8AccumulatorBits,
            .sass_must = "QGMMA",
            .sass_not = "HMMA"};
  }
  const char* computed = p.x.element == Element::f16 ? "fp16" : "bf16";
  return {.computed = computed, .instruction = cat("wgmma ", computed, " (HGMMA)"), .accumulator_bits = 22, .sass_must = "HGMMA", .sass_not = "HMMA"};
}

#ifdef __CUDACC__

constexpr int kWarpgroup = 128;                  // threads
constexpr int kOperandBytes = kTile * 128;       // 128 rows of 128 bytes
constexpr int kStageBytes = 2 * kOperandBytes;   // x and w
constexpr int kResultBytes = kTile * kTile * 2;  // per consumer; e4m3 uses half
constexpr int kStages = 5;                       // 5 x 32 KiB + 2 x 32 KiB results: the most that fits 227 KiB
constexpr int kColumnBytes = kTile * 8;          // per consumer: factor and bias of each column
constexpr int kBarriers = 2 * kStages + 2;
constexpr int kSharedBytes = kStages * kStageBytes + 2 * kResultBytes + 2 * kColumnBytes + kBarriers * 8;

struct Maps {
  CUtensorMap x, w, y, residual;
};

struct Params {
  int tiles, tiles_n, k_blocks, n;
  const float* x_scale;  // e4m3 only
  const float* w_scale;
  int w_scale_stride;  // 1: per channel, 0: per tensor
  const void *bias, *gain;  // null where the program has none
  const float* y_scale;     // e4m3 results
  bool residual;
};

template <class In>
using HalfOf = std::conditional_t<std::is_same_v<In, __nv_bfloat16>, __nv_bfloat16, __half>;
template <class In>
__device__ __forceinline__ float load_half(const void* data, int index) {
  return static_cast<float>(static_cast<const HalfOf<In>*>(data)[index]);
}

// Shared memory: stages of x and w, results and columns of the two consumers, barriers.
struct Ring {
  uint32_t base;
  __device__ uint32_t x(int stage) const { return base + stage * kStageBytes; }
  __device__ uint32_t w(int stage) const { return base + stage * kStageBytes + kOperandBytes; }
  __device__ uint32_t results(int consumer) const { return base + kStages * kStageBytes + consumer * kResultBytes; }
  __device__ uint32_t columns(int consumer) const { return base + kStages * kStageBytes + 2 * kResultBytes + consumer * kColumnBytes; }
  __device__ uint32_t full(int stage) const { return base + kSharedBytes - kBarriers * 8 + stage * 8; }
  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }
  __device__ uint32_t residual(int consumer) const { return full(2 * kStages + consumer); }
};

// Neighbouring blocks take tiles of the same rows: x is read from memory once, w stays in the L2.
struct Tile {
  int m, n;
  __device__ Tile(const Params& p, int index) : m(index / p.tiles_n * kTile), n(index % p.tiles_n * kTile) {}
};

template <class In>
__device__ void load_tiles(const Maps& maps, const Params& p, const Ring& ring) {
  constexpr int kBlockK = 128 / sizeof(In);
  uint32_t position = 0;  // of the k block in the ring
  for (int index = blockIdx.x; index < p.tiles; index += gridDim.x) {
    const Tile tile(p, index);
    for (int kb = 0; kb < p.k_blocks; ++kb, ++position) {
      const int stage = position % kStages;
      sm90::wait(ring.empty(stage), (position / kStages & 1) ^ 1);
      sm90::arrive_expecting(ring.full(stage), kStageBytes);
      sm90::load_box(ring.x(stage), &maps.x, kb * kBlockK, tile.m, ring.full(stage));
      sm90::load_box(ring.w(stage), &maps.w, kb * kBlockK, tile.n, ring.full(stage));
    }
  }
}

// One tile's products: d[0] rows 0-63, d[1] rows 64-127.
template <class In>
__device__ __forceinline__ void multiply_tile(float (&d)[2][64], const Params& p, const Ring& ring, uint32_t position, bool leader) {
  for (int kb = 0; kb < p.k_blocks; ++kb, ++position) {
    const int stage = position % kStages;
    sm90::wait(ring.full(stage), position / kStages & 1);
    const uint64_t x = sm90::operand_descriptor(ring.x(stage)), w = sm90::operand_descriptor(ring.w(stage));
    sm90::pin(d[0]);
    sm90::pin(d[1]);
    sm90::begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int accumulate = kb > 0 || k > 0;
      sm90::Products<In, kTile>::shared(d[0], x + k * sm90::kDescriptorStepK, w + k * sm90::kDescriptorStepK, accumulate);
      sm90::Products<In, kTile>::shared(d[1], x + sm90::kDescriptorStep64Rows + k * sm90::kDescriptorStepK, w + k * sm90::kDescriptorStepK, accumulate);
    }
    sm90::commit_products();
    sm90::wait_products<1>();  // the block before this one is done: its stage is free
    if (kb > 0 && leader) sm90::arrive(ring.empty((position - 1) % kStages));
  }
}

// Factor and bias of a column: one thread reads them, before the products so that the latency is hidden, and leaves them for all.
template <class In>
__device__ __forceinline__ float2 load_column(const Params& p, int c) {
  float2 column{1, 0};
  if (c >= p.n) return column;
  if (sizeof(In) == 1) column.x = *p.x_scale * p.w_scale[c * p.w_scale_stride];
  if (p.bias != nullptr) column.y = load_half<In>(p.bias, c);
  return column;
}

// The program on a tile in registers, then into shared memory where the copy engine takes it (and where it left the residual, place for place).
template <class In, class Out, bool kGelu>
__device__ __forceinline__ void finish_tile(const float (&d)[2][64], const Params& p, uint32_t columns, uint32_t results, int n) {
  using Half = HalfOf<In>;
  constexpr bool kFp8Out = sizeof(Out) == 1;
  const auto decode = [](uint32_t pair) { return std::is_same_v<Half, __half> ? cuda::decode_half_pair(pair) : cuda::decode_bf16_pair(pair); };
  const int thread = threadIdx.x % kWarpgroup, row = sm90::result_row(thread), col = sm90::result_col(thread);
  const float inverse = kFp8Out ? 1.0f / *p.y_scale : 1.0f;
  // Two boxes of 64 columns side by side; e4m3: one of 128.
  const auto place = [&](int j, int i) {
    const int r = row + i % 2 * 8 + i / 2 * 64;  // rows row, row + 8, row + 64, row + 72
    return kFp8Out ? results + sm90::swizzled_offset(r, j * 8 + col) : results + j / 8 * (kResultBytes / 2) + sm90::swizzled_offset(r, (j % 8 * 8 + col) * 2);
  };
#pragma unroll
  for (int j = 0; j < kTile / 8; ++j) {
    uint32_t residual[4] = {};
    if (!kFp8Out && p.residual) {
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("ld.shared.b32 %0, [%1];" : "=r"(residual[i]) : "r"(place(j, i)));
    }
    float factor0, bias0, factor1, bias1;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(factor0), "=f"(bias0), "=f"(factor1), "=f"(bias1) : "r"(columns + (j * 8 + col) * 8));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float v0 = fmaf(d[i / 2][j * 4 + i % 2 * 2], factor0, bias0), v1 = fmaf(d[i / 2][j * 4 + i % 2 * 2 + 1], factor1, bias1);
      if (kGelu) v0 = gelu_erf_fast(v0), v1 = gelu_erf_fast(v1);
      if (p.gain != nullptr) {
        const int c = n + j * 8 + col;
        if (c < p.n) v0 *= load_half<In>(p.gain, c), v1 *= load_half<In>(p.gain, c + 1);
      }
      if constexpr (kFp8Out) {
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(place(j, i)), "h"(static_cast<uint16_t>(cuda::encode_e4m3_pair(v0 * inverse, v1 * inverse))));
      } else {
        if (p.residual) {
          const float2 add = decode(residual[i]);
          v0 += add.x, v1 += add.y;
        }
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(place(j, i)), "r"(cuda::pack_pair<Half>(v0, v1)));
      }
    }
  }
}

template <class In, class Out, bool kGelu>
__device__ void consume_tiles(const Maps& maps, const Params& p, const Ring& ring, int consumer) {
  constexpr int kBoxes = sizeof(Out) == 1 ? 1 : 2;
  // Named barriers: 1, 2 whose turn it is to multiply; 3, 4 the threads of one consumer.
  const int turn = 1 + consumer, other_turn = 2 - consumer, own = 3 + consumer;
  const int thread = threadIdx.x % kWarpgroup;
  const bool leader = thread == 0;
  const uint32_t results = ring.results(consumer), columns = ring.columns(consumer), residual = ring.residual(consumer);
  float d[2][64];
  if (consumer == 1) sm90::signal_threads(other_turn, 2 * kWarpgroup);  // the first turn is consumer 0's
  uint32_t position = 0, visits = 0;
  int round = 0;
  for (int index = blockIdx.x; index < p.tiles; index += gridDim.x, ++round, position += p.k_blocks) {
    if (round % 2 != consumer) continue;
    const Tile tile(p, index);
    const float2 column = load_column<In>(p, tile.n + thread);
    if (leader) {
      sm90::wait_stores_read();  // of the tile before: its place is free
      if (p.residual) {
        sm90::arrive_expecting(residual, kResultBytes);
        sm90::load_box(results, &maps.residual, tile.n, tile.m, residual);
        sm90::load_box(results + kResultBytes / 2, &maps.residual, tile.n + 64, tile.m, residual);
      }
    }
    sm90::sync_threads(turn, 2 * kWarpgroup);
    multiply_tile<In>(d, p, ring, position, leader);
    sm90::signal_threads(other_turn, 2 * kWarpgroup);
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(columns + thread * 8), "f"(column.x), "f"(column.y));
    sm90::wait_products<0>();
    sm90::pin(d[0]);
    sm90::pin(d[1]);
    if (leader) sm90::arrive(ring.empty((position + p.k_blocks - 1) % kStages));
    if (p.residual) sm90::wait(residual, visits & 1);
    ++visits;
    sm90::sync_threads(own, kWarpgroup);  // the columns are there, and the leader has seen the last store read
    finish_tile<In, Out, kGelu>(d, p, columns, results, tile.n);
    sm90::fence_for_copy_engine();
    sm90::sync_threads(own, kWarpgroup);
    if (leader) {
#pragma unroll
      for (int b = 0; b < kBoxes; ++b) sm90::store_box(&maps.y, tile.n + b * 64, tile.m, results + b * (kResultBytes / 2));
      sm90::commit_stores();
    }
  }
  if (leader) sm90::wait_stores_read();
}

template <class In, class Out, bool kGelu>
__global__ void __launch_bounds__(3 * kWarpgroup, 1) multiply(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) uint8_t shared[];  // sm90::kSwizzleAtomBytes
  const Ring ring{cuda::shared_address(shared)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      sm90::init_barrier(ring.full(i), 1);
      sm90::init_barrier(ring.empty(i), 1);
    }
    for (int i = 0; i < 2; ++i) sm90::init_barrier(ring.residual(i), 1);
    sm90::fence_barrier_init();
    sm90::prefetch(&maps.x);
    sm90::prefetch(&maps.w);
    sm90::prefetch(&maps.y);
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    sm90::give_registers<40>();
    if (threadIdx.x == 0) load_tiles<In>(maps, p, ring);
  } else {
    sm90::take_registers<232>();
    consume_tiles<In, Out, kGelu>(maps, p, ring, warpgroup - 1);
  }
}

using KernelFunction = void (*)(Maps, Params);

KernelFunction pick(const MatmulProblem& p) {
  const bool gelu = p.then->find(StepKind::act) != nullptr;
  if (p.x.element == Element::f16) return gelu ? multiply<__half, __half, true> : multiply<__half, __half, false>;
  if (p.x.element == Element::bf16) return gelu ? multiply<__nv_bfloat16, __nv_bfloat16, true> : multiply<__nv_bfloat16, __nv_bfloat16, false>;
  if (p.y.element == Element::e4m3) {
    return gelu ? multiply<__nv_fp8_e4m3, __nv_fp8_e4m3, true> : multiply<__nv_fp8_e4m3, __nv_fp8_e4m3, false>;
  }
  return gelu ? multiply<__nv_fp8_e4m3, __half, true> : multiply<__nv_fp8_e4m3, __half, false>;
}

class WgmmaKernel final : public Kernel {
 public:
  WgmmaKernel(const Problem& problem, int processors) : problem_(problem), p_(MatmulProblem::of(problem_)), function_(pick(p_)), processors_(processors) {}

  Status prepare() { return cuda::allow_shared_memory(kName, function_, kSharedBytes); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    const int64_t in_bytes = info(p_.x.element).bits / 8;
    Params params{.tiles = static_cast<int>(divide_up(p_.m, kTile) * divide_up(p_.n, kTile)),
                  .tiles_n = static_cast<int>(divide_up(p_.n, kTile)),
                  .k_blocks = static_cast<int>(divide_up(p_.k * in_bytes, 128)),
                  .n = static_cast<int>(p_.n),
                  .x_scale = static_cast<const float*>(in[0].scale),
                  .w_scale = static_cast<const float*>(in[1].scale),
                  .w_scale_stride = p_.w.scale.granularity == Granularity::kChannel ? 1 : 0,
                  .y_scale = static_cast<const float*>(out[0].scale)};
    Maps maps{};
    TS_ASSIGN(maps.x, cuda::make_matrix_map(in[0].data, p_.x.element, p_.m, p_.k, p_.x_row_stride, kTile));
    TS_ASSIGN(maps.w, cuda::make_matrix_map(in[1].data, p_.w.element, p_.n, p_.k, p_.k, kTile));
    TS_ASSIGN(maps.y, cuda::make_matrix_map(out[0].data, p_.y.element, p_.m, p_.n, p_.n, kTile));
    for (const Step& s : p_.then->steps) {
      const TensorView* operand = s.operand >= 0 ? &in[static_cast<size_t>(s.operand)] : nullptr;
      if (s.kind == StepKind::bias) params.bias = operand->data;
      if (s.kind == StepKind::scale) params.gain = operand->data;
      if (s.kind == StepKind::residual) {
        params.residual = true;
        const RowView rows = operand->desc->rows();
        TS_ASSIGN(maps.residual, cuda::make_matrix_map(operand->data, p_.y.element, p_.m, p_.n, rows.row_stride, kTile));
      }
    }
    const int64_t blocks = std::min(processors_, params.tiles);
    return cuda::launch_kernel(kName, function_, blocks, 3 * kWarpgroup, kSharedBytes, stream.handle, maps, params);
  }

 private:
  const Problem problem_;
  const MatmulProblem p_;
  const KernelFunction function_;
  const int processors_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  int device = 0, processors = 0;
  TS_TRY(cuda::cuda_status(kName, cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status(kName, cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
  auto kernel = std::make_unique<WgmmaKernel>(problem, processors);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#endif

}  // namespace

const Variant& matmul_sm90_wgmma() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .worthwhile = worthwhile,
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
