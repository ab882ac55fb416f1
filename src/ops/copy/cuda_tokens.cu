// SPDX-License-Identifier: Apache-2.0
// copy/cuda_tokens: rows to e4m3 with a scale for each row, made here: between layers whose results lie in several
// blocks' hands. A block takes one row after the other and keeps it in registers while its largest number is found;
// rows that are too long for that, or begin anywhere, are read twice.
#include "base/buffer.h"
#include "ops/copy/copy.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "archs/cuda/instructions.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/token_scale.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "copy/cuda_tokens";

Verdict accepts(const Problem& p) {
  const Operand &x = p.in[0], &y = p.out[0];
  TS_REQUIRE(y.type == kE4m3PerToken, "writes e4m3 with scales per token made while running, not ", to_string(y.type));
  TS_REQUIRE(is_device_float(x.type), "reads f32, f16 or bf16, not ", to_string(x.type));
  TS_REQUIRE(x.layout == Layout::kRows && x.rows().uniform,
             "the rows of x must lie in rows that follow each other at one distance");
  TS_REQUIRE(p.then.empty(), "runs no program");
  TS_REQUIRE(elements(y.shape) <= kMaxDeviceElements, "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "conversion", .accumulator_bits = 24};
}

#ifdef __CUDACC__

constexpr int kThreads = 128;

struct Args {
  DeviceTensor x;
  void* const* x_slot;  // null, or where x is found when the kernel runs
  int64_t x_slot_offset, x_row_stride;
  void* y;
  float* scales;
  int rows, cols;
};

__device__ __forceinline__ const void* x_of(const Args& p) {
  return p.x_slot == nullptr ? p.x.data : static_cast<const uint8_t*>(*p.x_slot) + p.x_slot_offset;
}

__device__ __forceinline__ cuda::TokenScale scale_row(const Args& p, int row, float largest) {
  __shared__ float scratch[kThreads / 32];
  const cuda::TokenScale scale = cuda::token_scale(cuda::across_block<cuda::Max, kThreads>(largest, scratch));
  if (threadIdx.x == 0) p.scales[row] = scale.value;
  return scale;
}

// Eight numbers at a time, at most kChunks times for a thread.
template <int kChunks>
__global__ void __launch_bounds__(kThreads) code_rows(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const void* x = x_of(p);
  for (int row = static_cast<int>(blockIdx.x); row < p.rows; row += static_cast<int>(gridDim.x)) {
    cuda::Raw8 raw[kChunks];
    float v[kChunks][8], largest = 0.0f;
    const auto column = [&](int c) { return (c * kThreads + static_cast<int>(threadIdx.x)) * 8; };
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      raw[c] = {};
      if (column(c) < p.cols) raw[c] = cuda::load_raw8(p.x.element, x, row * p.x_row_stride + column(c));
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      cuda::decode8(p.x.element, raw[c], v[c]);
      largest = cuda::Max::apply(largest, cuda::largest_magnitude(v[c]));
    }
    const cuda::TokenScale scale = scale_row(p, row, largest);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[c][i] = scale.quotient(v[c][i]);
      if (column(c) < p.cols) cuda::store8(Element::e4m3, p.y, int64_t{row} * p.cols + column(c), v[c]);
    }
  }
}

__global__ void __launch_bounds__(kThreads) code_any_rows(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const void* x = x_of(p);
  for (int row = static_cast<int>(blockIdx.x); row < p.rows; row += static_cast<int>(gridDim.x)) {
    const auto number = [&](int col) { return cuda::load_one(p.x.element, x, row * p.x_row_stride + col); };
    float largest = 0.0f;
    for (int col = static_cast<int>(threadIdx.x); col < p.cols; col += kThreads)
      largest = cuda::Max::apply(largest, fabsf(number(col)));
    const cuda::TokenScale scale = scale_row(p, row, largest);
    for (int col = static_cast<int>(threadIdx.x); col < p.cols; col += kThreads)
      cuda::store_one(Element::e4m3, p.y, int64_t{row} * p.cols + col, scale.quotient(number(col)));
  }
}

class CopyTokens final : public Kernel {
 public:
  explicit CopyTokens(const Problem& p)
      : x_(p.in[0].rows()), cols_(p.out[0].shape.empty() ? 1 : p.out[0].shape.back()) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (x_.rows * cols_ == 0) return {};
    const Args p{.x = device_tensor(in[0]),
                 .x_slot = in[0].slot,
                 .x_slot_offset = in[0].slot_offset_bytes,
                 .x_row_stride = x_.rows == 1 ? 0 : x_.row_stride,
                 .y = out[0].data,
                 .scales = static_cast<float*>(out[0].scale),
                 .rows = static_cast<int>(x_.rows),
                 .cols = static_cast<int>(cols_)};
    // A caller's buffer may begin anywhere.
    const bool aligned = in[0].slot == nullptr && is_aligned(in[0].data, 16) && is_aligned(out[0].data, 16) &&
                         cols_ % 8 == 0 && p.x_row_stride % 8 == 0;
    return cuda::launch_overlapping(kName, pick(aligned), std::min<int64_t>(x_.rows, kMostBlocks), kThreads, 0,
                                    stream.handle, 1, p);
  }

 private:
  static constexpr int64_t kMostBlocks = 1 << 16;
  using Launcher = void (*)(Args);
  Launcher pick(bool aligned) const {
    constexpr int64_t kAtOnce = kThreads * 8;
    if (!aligned || cols_ > 8 * kAtOnce) return code_any_rows;
    if (cols_ <= kAtOnce) return code_rows<1>;
    if (cols_ <= 2 * kAtOnce) return code_rows<2>;
    if (cols_ <= 4 * kAtOnce) return code_rows<4>;
    return code_rows<8>;
  }

  const RowView x_;
  const int64_t cols_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<CopyTokens>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& copy_cuda_tokens() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG", "SHFL"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
