// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm, the row in registers: x crosses memory once, in 16-byte loads. A warp per row up to 2048
// columns, a block per row up to 16384; rows that are longer or do not divide into chunks of 8 columns are read three
// times.
#include "base/buffer.h"
#include "ops/norm/norm.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "tiles/cuda/axes.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/sums.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "norm/cuda_rows";

Verdict accepts(const Problem& p) {
  const NormProblem n = NormProblem::of(p);
  TS_REQUIRE(!n.pooled, "writes every row, not the mean of a group of them");
  TS_REQUIRE(is_device_number(n.x) && is_device_number(n.y),
             "reads and writes f32, f16, bf16, or e4m3 with one static f32 scale, not ", to_string(n.x), " and ",
             to_string(n.y));
  TS_REQUIRE(p.in[0].strides.back() == 1 || n.cols == 1, "the last axis of x must be contiguous");
  TS_REQUIRE(n.lead.size() <= kMaxAxes, "the rows of x have ", n.lead.size(), " axes that cannot be merged; at most ",
             kMaxAxes, " are walked");
  for (size_t i : {1, 2}) {
    const Operand* o = p.operand(i);
    TS_REQUIRE(o == nullptr || (is_device_float(o->type) && o->dense()),
               "gain and shift must be dense f32, f16 or bf16");
  }
  TS_REQUIRE(n.then->within(kCodesOnly), kCodesOnly.says_in_order());
  TS_REQUIRE(n.rows <= kMaxDeviceElements && n.cols <= kMaxDeviceElements, "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "FMA", .accumulator_bits = 24};
}

#ifdef __CUDACC__

constexpr int kThreads = 256;

struct Args {
  DeviceTensor x, y, gain, shift;  // gain, shift: data is null where absent
  int64_t rows;
  DeviceAxes<1> lead;  // of the rows of x
  int cols;
  float eps;
  bool rms;
};

__device__ __forceinline__ int64_t row_of_x(const Args& p, int64_t row) {
  int64_t at[1];
  cuda::offsets_at(p.lead, static_cast<uint32_t>(row), at);
  return at[0];
}

// The lane's columns are (first + c * step) * 8 ... + 7 for c = 0 .. kChunks - 1. kBlock: the whole block has one row,
// else each warp has its own.
template <int kChunks, bool kBlock>
__device__ __forceinline__ void normalise(const Args& p, int64_t row, int first, float* scratch) {
  constexpr int kStep = kBlock ? kThreads : 32;
  const auto sum_all = [&](float v) {
    if constexpr (kBlock) return cuda::across_block<cuda::Add, kThreads>(v, scratch);
    return cuda::sum_across_warp(v);
  };
  const int64_t from = row_of_x(p, row);
  cuda::Raw8 raw[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int col = (first + c * kStep) * 8;
    if (col < p.cols) raw[c] = cuda::load_raw8(p.x.element, p.x.data, from + col);
  }
  const float scale = cuda::scale_of(p.x);
  float v[kChunks][8], sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if ((first + c * kStep) * 8 < p.cols) {
      cuda::decode8(p.x.element, raw[c], v[c]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        v[c][i] *= scale;
        sum += v[c][i];
      }
    }
  }
  const float mean = p.rms ? 0.0f : sum_all(sum) / static_cast<float>(p.cols);
  float square = 0.0f;  // about the mean, in a second pass over registers: no cancellation
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if ((first + c * kStep) * 8 < p.cols) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        v[c][i] -= mean;
        square = fmaf(v[c][i], v[c][i], square);
      }
    }
  }
  const float inverse = rsqrtf(sum_all(square) / static_cast<float>(p.cols) + p.eps);
  const float to_code = cuda::inverse_scale_of(p.y);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int col = (first + c * kStep) * 8;
    if (col < p.cols) {
      float w[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) v[c][i] *= inverse;
      if (p.gain.data != nullptr) {
        cuda::load8(p.gain.element, p.gain.data, col, w);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[c][i] *= w[i];
      }
      if (p.shift.data != nullptr) {
        cuda::load8(p.shift.element, p.shift.data, col, w);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[c][i] += w[i];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) v[c][i] *= to_code;
      cuda::store8(p.y.element, p.y.data, row * p.cols + col, v[c]);
    }
  }
}

template <int kChunks>
__global__ void __launch_bounds__(kThreads) normalise_by_warp(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const int64_t row = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (row < p.rows) normalise<kChunks, false>(p, row, threadIdx.x % 32, nullptr);
}

template <int kChunks>
__global__ void __launch_bounds__(kThreads) normalise_by_block(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  __shared__ float scratch[kThreads / 32];
  normalise<kChunks, true>(p, blockIdx.x, threadIdx.x, scratch);
}

__global__ void __launch_bounds__(kThreads) normalise_any(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  __shared__ float scratch[kThreads / 32];
  const int64_t row = blockIdx.x;
  const float scale = cuda::scale_of(p.x), to_code = cuda::inverse_scale_of(p.y);
  const int64_t from = row_of_x(p, row);
  const auto number = [&](int col) { return cuda::load_one(p.x.element, p.x.data, from + col) * scale; };
  float mean = 0.0f;
  if (!p.rms) {
    float sum = 0.0f;
    for (int col = threadIdx.x; col < p.cols; col += kThreads) sum += number(col);
    mean = cuda::across_block<cuda::Add, kThreads>(sum, scratch) / static_cast<float>(p.cols);
  }
  float square = 0.0f;
  for (int col = threadIdx.x; col < p.cols; col += kThreads) {
    const float d = number(col) - mean;
    square = fmaf(d, d, square);
  }
  const float inverse =
      rsqrtf(cuda::across_block<cuda::Add, kThreads>(square, scratch) / static_cast<float>(p.cols) + p.eps);
  for (int col = threadIdx.x; col < p.cols; col += kThreads) {
    float v = (number(col) - mean) * inverse;
    if (p.gain.data != nullptr) v *= cuda::load_one(p.gain.element, p.gain.data, col);
    if (p.shift.data != nullptr) v += cuda::load_one(p.shift.element, p.shift.data, col);
    cuda::store_one(p.y.element, p.y.data, row * p.cols + col, v * to_code);
  }
}

class NormRows final : public Kernel {
 public:
  explicit NormRows(const Problem& p) : n_(NormProblem::of(p)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (n_.rows * n_.cols == 0) return {};
    Args p{.x = device_tensor(in[0]), .y = device_tensor(out[0]), .gain = {}, .shift = {}, .rows = n_.rows};
    p.lead.set(n_.lead, 1);
    p.lead.set_strides(0, n_.lead_strides, 1);
    if (n_.has_gain) p.gain = device_tensor(in[1]);
    if (n_.has_shift) p.shift = device_tensor(in[2]);
    p.cols = static_cast<int>(n_.cols);
    p.eps = n_.eps;
    p.rms = n_.kind == NormKind::kRms;
    bool vector = p.cols % 8 == 0 && p.cols <= 64 * kThreads;
    for (const int64_t stride : n_.lead_strides) vector = vector && (n_.rows == 1 || stride % 8 == 0);
    for (const DeviceTensor* t : {&p.x, &p.y, &p.gain, &p.shift}) vector = vector && is_aligned(t->data, 16);
    if (!vector) return cuda::launch_overlapping(kName, normalise_any, p.rows, kThreads, 0, stream.handle, 1, p);
    const auto by_warp = [&](auto kernel) {
      return cuda::launch_overlapping(kName, kernel, divide_up(p.rows, kThreads / 32), kThreads, 0, stream.handle, 1,
                                      p);
    };
    const auto by_block = [&](auto kernel) {
      return cuda::launch_overlapping(kName, kernel, p.rows, kThreads, 0, stream.handle, 1, p);
    };
    if (p.cols <= 256) return by_warp(normalise_by_warp<1>);
    if (p.cols <= 512) return by_warp(normalise_by_warp<2>);
    if (p.cols <= 768) return by_warp(normalise_by_warp<3>);
    if (p.cols <= 1024) return by_warp(normalise_by_warp<4>);
    if (p.cols <= 1536) return by_warp(normalise_by_warp<6>);
    if (p.cols <= 2048) return by_warp(normalise_by_warp<8>);
    if (p.cols <= 4096) return by_block(normalise_by_block<2>);
    return by_block(normalise_by_block<8>);
  }

 private:
  const NormProblem n_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<NormRows>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& norm_cuda_rows() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG", "SHFL"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
