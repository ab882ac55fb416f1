// SPDX-License-Identifier: Apache-2.0
// A pooled norm of 16-bit rows up to 2048 columns: x crosses memory once, and nothing but the means is written. The
// blocks of a cluster share a group's rows. Each warp normalises one row after the other in registers, two more under
// way meanwhile, and adds it to fp32 sums of its own; then warps add up in shared memory, and each block receives its
// share of the columns from every block of its cluster. All in a fixed order, which depends on the problem alone.
#include "archs/sm90/chip.h"
#include "base/buffer.h"
#include "ops/norm/norm.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "archs/cuda/instructions.cuh"
#include "archs/sm90/instructions.cuh"
#include "ops/norm/warp_row.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/sums.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "norm/sm90_pooled";
constexpr int kMostBlocks = 8;  // of a cluster, on every Hopper

bool is_half(const QuantType& t) { return !t.scaled() && (t.element == Element::f16 || t.element == Element::bf16); }

// x as groups of rows: each group's first row, one per row of the result.
RowView groups_of(const Operand& x) {
  Shape shape = x.shape, strides = x.strides;
  shape.erase(shape.end() - 2);
  strides.erase(strides.end() - 2);
  return as_rows(shape, strides);
}
int64_t row_stride_of(const Operand& x) { return x.strides[x.strides.size() - 2]; }

Verdict accepts(const Problem& p) {
  const NormProblem n = NormProblem::of(p);
  TS_REQUIRE(n.pooled, "writes the mean of each group of rows (pooled), not every row");
  TS_REQUIRE(is_half(n.x), "reads f16 or bf16, not ", to_string(n.x));
  TS_REQUIRE(is_device_float(n.y) || n.y == kE4m3PerTensor,
             "writes f32, f16, bf16, or e4m3 with one static f32 scale, not ", to_string(n.y));
  const RowView groups = groups_of(p.in[0]);
  TS_REQUIRE(
      groups.uniform && (groups.rows == 1 || groups.row_stride % 8 == 0) &&
          (n.group == 1 || row_stride_of(p.in[0]) % 8 == 0),
      "the groups of x, and the rows of a group, must follow each other at one distance, a multiple of 16 bytes");
  TS_REQUIRE(n.cols % 8 == 0 && n.cols <= 2048,
             "holds rows of up to 2048 columns, a multiple of 8, in a warp's registers, not ", n.cols);
  for (size_t i : {1, 2}) {
    const Operand* o = p.operand(i);
    TS_REQUIRE(o == nullptr || (is_device_float(o->type) && o->dense() && o->constant),
               "gain and shift must be dense constants of f32, f16 or bf16");
  }
  TS_REQUIRE(n.then->within(kCodesOnly), kCodesOnly.says_in_order());
  TS_REQUIRE(n.rows <= kMaxDeviceElements / kMostBlocks, "too many rows for 31-bit indices, some of which lie ahead");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "FMA", .accumulator_bits = 24};
}

#ifdef __CUDACC__

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct Args {
  const uint16_t* x;
  Element x_element;
  DeviceTensor y, gain, shift;  // gain, shift: data is null where absent
  int64_t group_stride, row_stride;
  int groups, rows, cols;  // rows: of one group
  int cluster;             // blocks that share a group
  bool backward;
  float eps;
  bool rms;
};

__device__ __forceinline__ int64_t in_turn(const Args& p, int turn, int count) {
  return p.backward ? count - 1 - turn : turn;
}

template <int kChunks>
__device__ __forceinline__ void load_row(const Args& p, const uint16_t* group, int row, cuda::WarpRow<kChunks>& r) {
  cuda::load_row(group + in_turn(p, row, p.rows) * p.row_stride, row < p.rows, p.cols, r);
}

__device__ __forceinline__ void add_four(float4& sum, const float4& v) {
  sum.x += v.x;
  sum.y += v.y;
  sum.z += v.z;
  sum.w += v.w;
}

// Shared memory in chunks of 8 columns, the halves of all chunks apart: neighbouring lanes then use neighbouring banks.
template <int kChunks>
struct Shared {
  static constexpr int kAll = kChunks * 32;
  float4 partial[kWarps / 2][2][kAll];
  float4 received[2][kAll + kMostBlocks];  // [of block r][its i-th chunk of this block's share] at r * share + i
};

// Adds the warps' sums: warps 4 to 7 hand theirs to warps 0 to 3, then thread t adds chunk t of the four.
template <int kChunks>
__device__ __forceinline__ void add_warps(Shared<kChunks>& shared, const float (&sum)[kChunks][8], float4 (&all)[2]) {
  constexpr int kHalf = kWarps / 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto four = [&](int c, int half) {
    return float4{sum[c][4 * half], sum[c][4 * half + 1], sum[c][4 * half + 2], sum[c][4 * half + 3]};
  };
  for (int turn = 0; turn < 2; ++turn) {
    if ((warp >= kHalf) == (turn == 0)) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float4& at = shared.partial[warp % kHalf][half][c * 32 + lane];
          float4 v = four(c, half);
          if (turn == 1) add_four(v, at);
          at = v;
        }
      }
    }
    __syncthreads();
  }
  if (threadIdx.x >= Shared<kChunks>::kAll) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    all[half] = shared.partial[0][half][threadIdx.x];
#pragma unroll
    for (int w = 1; w < kHalf; ++w) add_four(all[half], shared.partial[w][half][threadIdx.x]);
  }
}

// Two blocks per SM up to 1024 columns: some 90 KiB of x under way there. Wider rows need the registers of both.
template <Element kIn, int kChunks>
__global__ void __launch_bounds__(kThreads, kChunks <= 4 ? 2 : 1) pool_rows(const __grid_constant__ Args p) {
  __shared__ Shared<kChunks> shared;
  cuda::let_next_kernel_start();
  sm90::arrive_cluster();
  const int rank = static_cast<int>(sm90::rank_in_cluster()), thread = static_cast<int>(threadIdx.x);
  const int64_t group = in_turn(p, static_cast<int>(blockIdx.x) / p.cluster, p.groups);
  const int step = p.cluster * kWarps, first = rank * kWarps + thread / 32;
  // Chunk i of a row is finished by block i % cluster, there by thread i / cluster.
  const int chunks = p.cols / 8, share = (chunks + p.cluster - 1) / p.cluster, finished = thread * p.cluster + rank;
  const bool finishes = thread < share && finished < chunks;
  // Gain and shift are constants, which no kernel before this one makes. They have no registers to wait in.
  const auto begins = [&](const DeviceTensor& t) {
    return static_cast<const uint8_t*>(t.data) + finished * (t.element == Element::f32 ? 32 : 16);
  };
  if (finishes && p.gain.data != nullptr) sm90::prefetch_to_l2(begins(p.gain));
  if (finishes && p.shift.data != nullptr) sm90::prefetch_to_l2(begins(p.shift));
  const float to_code = cuda::inverse_scale_of(p.y);
  cuda::wait_for_earlier_kernels();

  const uint16_t* rows = p.x + group * p.group_stride;
  cuda::WarpRow<kChunks> even, odd;
  load_row(p, rows, first, even);
  load_row(p, rows, first + step, odd);
  float sum[kChunks][8] = {};
  const float per_column = 1.0f / static_cast<float>(p.cols);

  // Adds `row`, which lies in r, and sends for row `ahead` into r as soon as r has been read.
  const auto add = [&](int row, cuda::WarpRow<kChunks>& r, int ahead) {
    if (row >= p.rows) return;  // the same for all lanes
    float v[kChunks][8];
    const float total = cuda::decode_row<kIn>(r, v);
    load_row(p, rows, ahead, r);
    const float inverse = cuda::centre_row(v, total, p.cols, per_column, p.rms, p.eps);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[c][i] = fmaf(v[c][i], inverse, sum[c][i]);
    }
  };
  for (int row = first; row < p.rows; row += 2 * step) {
    add(row, even, row + 2 * step);
    add(row + step, odd, row + 3 * step);
  }

  float4 all[2];
  add_warps<kChunks>(shared, sum, all);
  sm90::wait_cluster();  // every block runs: its shared memory may be written
  if (thread < chunks) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t at = cuda::shared_address(&shared.received[half][rank * share + thread / p.cluster]);
      sm90::store_in_cluster(sm90::address_in(at, static_cast<uint32_t>(thread % p.cluster)), all[half]);
    }
  }
  cuda::Raw8 raw_gain{}, raw_shift{};
  if (finishes && p.gain.data != nullptr) raw_gain = cuda::load_raw8(p.gain.element, p.gain.data, finished * 8);
  if (finishes && p.shift.data != nullptr) raw_shift = cuda::load_raw8(p.shift.element, p.shift.data, finished * 8);
  __syncwarp();
  sm90::sync_cluster();
  if (!finishes) return;
  float4 mean[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    for (int r = 0; r < p.cluster; ++r) add_four(mean[half], shared.received[half][r * share + thread]);
  }
  const float per_row = 1.0f / static_cast<float>(p.rows);
  float y[8] = {mean[0].x, mean[0].y, mean[0].z, mean[0].w, mean[1].x, mean[1].y, mean[1].z, mean[1].w}, gain[8],
        shift[8];
  cuda::decode8(p.gain.element, raw_gain, gain);
  cuda::decode8(p.shift.element, raw_shift, shift);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    y[i] *= per_row;
    if (p.gain.data != nullptr) y[i] *= gain[i];
    if (p.shift.data != nullptr) y[i] += shift[i];
    y[i] *= to_code;
  }
  cuda::store8(p.y.element, p.y.data, group * p.cols + finished * 8, y);
}

// Operands that begin anywhere (a view inside a row), one number at a time: a block per group, one row after the other.
__global__ void __launch_bounds__(kThreads) pool_anywhere(const __grid_constant__ Args p) {
  constexpr int kPerThread = 2048 / kThreads;
  __shared__ float scratch[kWarps];
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const auto sum_all = [&](float v) { return cuda::across_block<cuda::Add, kThreads>(v, scratch); };
  const float columns = static_cast<float>(p.cols);
  float sum[kPerThread] = {};
  for (int row = 0; row < p.rows; ++row) {
    const int64_t from = blockIdx.x * p.group_stride + row * p.row_stride;
    float v[kPerThread] = {}, total = 0.0f, square = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int col = static_cast<int>(threadIdx.x) + i * kThreads;
      if (col < p.cols) v[i] = cuda::load_one(p.x_element, p.x, from + col);
      total += v[i];
    }
    const float mean = p.rms ? 0.0f : sum_all(total) / columns;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (static_cast<int>(threadIdx.x) + i * kThreads < p.cols) v[i] -= mean;
      square = fmaf(v[i], v[i], square);
    }
    const float inverse = rsqrtf(sum_all(square) / columns + p.eps);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) sum[i] = fmaf(v[i], inverse, sum[i]);
  }
  const float per_row = 1.0f / static_cast<float>(p.rows), to_code = cuda::inverse_scale_of(p.y);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int col = static_cast<int>(threadIdx.x) + i * kThreads;
    if (col >= p.cols) continue;
    float y = sum[i] * per_row;
    if (p.gain.data != nullptr) y *= cuda::load_one(p.gain.element, p.gain.data, col);
    if (p.shift.data != nullptr) y += cuda::load_one(p.shift.element, p.shift.data, col);
    cuda::store_one(p.y.element, p.y.data, int64_t{blockIdx.x} * p.cols + col, y * to_code);
  }
}

// The fewest blocks per group with which all rows are done in the least time: rounds of blocks x rows of a warp. By the
// SMs of the chip that plans are made for, whatever this one has: the order of sums, and so the bits, follow from the
// problem alone.
int blocks_per_group(int64_t groups, int64_t rows, int64_t cols) {
  const int64_t at_once = cols <= 1024 ? 2 * sm90::kSms : sm90::kSms;
  int best = 1;
  int64_t least = INT64_MAX;
  for (int size = 1; size <= kMostBlocks; size *= 2) {
    const int64_t time = divide_up(groups * size, at_once) * divide_up(rows, size * kWarps);
    if (time < least) best = size, least = time;
  }
  return best;
}

using Launcher = void (*)(Args);

template <Element kIn>
Launcher kernel_for(int64_t cols) {
  if (cols <= 256) return pool_rows<kIn, 1>;
  if (cols <= 512) return pool_rows<kIn, 2>;
  if (cols <= 768) return pool_rows<kIn, 3>;
  if (cols <= 1024) return pool_rows<kIn, 4>;
  if (cols <= 1536) return pool_rows<kIn, 6>;
  return pool_rows<kIn, 8>;
}

class NormPooled final : public Kernel {
 public:
  explicit NormPooled(const Problem& p)
      : n_(NormProblem::of(p)),
        backward_(p.backward),
        groups_(n_.rows / n_.group),
        group_stride_(groups_of(p.in[0]).row_stride),
        row_stride_(row_stride_of(p.in[0])),
        cluster_(blocks_per_group(groups_, n_.group, n_.cols)),
        kernel_(n_.x.element == Element::f16 ? kernel_for<Element::f16>(n_.cols) : kernel_for<Element::bf16>(n_.cols)) {
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (groups_ * n_.cols == 0) return {};
    Args p{.x = static_cast<const uint16_t*>(in[0].data),
           .x_element = n_.x.element,
           .y = device_tensor(out[0]),
           .gain = {},
           .shift = {}};
    p.group_stride = groups_ == 1 ? 0 : group_stride_;
    p.row_stride = n_.group == 1 ? 0 : row_stride_;
    p.groups = static_cast<int>(groups_);
    p.rows = static_cast<int>(n_.group);
    p.cols = static_cast<int>(n_.cols);
    p.cluster = cluster_;
    p.backward = backward_;
    p.eps = n_.eps;
    p.rms = n_.kind == NormKind::kRms;
    if (n_.has_gain) p.gain = device_tensor(in[1]);
    if (n_.has_shift) p.shift = device_tensor(in[2]);
    bool aligned = true;
    for (const void* at : {in[0].data, out[0].data, p.gain.data, p.shift.data}) aligned = aligned && is_aligned(at, 16);
    if (!aligned) return cuda::launch_overlapping(kName, pool_anywhere, groups_, kThreads, 0, stream.handle, 1, p);
    return cuda::launch_overlapping(kName, kernel_, groups_ * cluster_, kThreads, 0, stream.handle, cluster_, p);
  }

 private:
  const NormProblem n_;
  const bool backward_;
  const int64_t groups_, group_stride_, row_stride_;
  const int cluster_;
  const Launcher kernel_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<NormPooled>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& norm_sm90_pooled() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG", "SHFL"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
