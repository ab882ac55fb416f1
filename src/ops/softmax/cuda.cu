// SPDX-License-Identifier: Apache-2.0
// Softmax over rows on the device: a warp per row, or a block where rows are long. Each row is read three times
// (maximum, sum, result), the second and third time from the cache; numbers come eight at a time where rows are
// aligned.
#include "base/buffer.h"
#include "ops/softmax/softmax.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/sums.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "softmax/cuda";

Verdict accepts(const Problem& p) {
  const SoftmaxProblem s = SoftmaxProblem::of(p);
  TS_REQUIRE(is_device_number(s.x) && is_device_number(s.y),
             "reads and writes f32, f16, bf16, or e4m3 with one static f32 scale, not ", to_string(s.x), " and ",
             to_string(s.y));
  TS_REQUIRE(p.in[0].rows().uniform && p.in[0].layout == Layout::kRows, "x must have uniform rows");
  TS_REQUIRE(s.rows <= kMaxDeviceElements && s.cols <= kMaxDeviceElements, "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "FADD, expf", .accumulator_bits = 24};
}

#ifdef __CUDACC__

constexpr int kThreads = 256, kLongRow = 2048;

struct Args {
  DeviceTensor x, y;
  int64_t rows, row_stride;
  int cols;
};

template <int N, bool kBlock>
__global__ void __launch_bounds__(kThreads) softmax_rows(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  __shared__ float scratch[kThreads / 32];
  constexpr int kStep = kBlock ? kThreads : 32;
  const int64_t row = kBlock ? int64_t{blockIdx.x} : int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (row >= p.rows) return;  // the same for all threads that meet at a barrier
  const int first = static_cast<int>(kBlock ? threadIdx.x : threadIdx.x % 32) * N;
  const float scale = cuda::scale_of(p.x);
  float v[N];

  float top = -INFINITY;
  for (int c = first; c < p.cols; c += kStep * N) {
    cuda::load_numbers<N>(p.x.element, p.x.data, row * p.row_stride + c, v);
#pragma unroll
    for (int e = 0; e < N; ++e) top = cuda::Max::apply(top, v[e] * scale);
  }
  if constexpr (kBlock) {
    top = cuda::across_block<cuda::Max, kThreads>(top, scratch);
  } else {
    top = cuda::across_warp<cuda::Max>(top);
  }
  const bool none = top == -INFINITY;  // no key at all: zeros, not -inf - -inf and 0 / 0
  if (none) top = 0.0f;

  float sum = 0.0f;
  for (int c = first; c < p.cols; c += kStep * N) {
    cuda::load_numbers<N>(p.x.element, p.x.data, row * p.row_stride + c, v);
#pragma unroll
    for (int e = 0; e < N; ++e) sum += expf(v[e] * scale - top);
  }
  if constexpr (kBlock) {
    sum = cuda::across_block<cuda::Add, kThreads>(sum, scratch);
  } else {
    sum = cuda::across_warp<cuda::Add>(sum);
  }

  const float factor = none ? 0.0f : cuda::inverse_scale_of(p.y) / sum;
  for (int c = first; c < p.cols; c += kStep * N) {
    cuda::load_numbers<N>(p.x.element, p.x.data, row * p.row_stride + c, v);
#pragma unroll
    for (int e = 0; e < N; ++e) v[e] = expf(v[e] * scale - top) * factor;
    cuda::store_numbers<N>(p.y.element, p.y.data, row * p.cols + c, v);
  }
}

class SoftmaxKernel final : public Kernel {
 public:
  explicit SoftmaxKernel(const Problem& p) : s_(SoftmaxProblem::of(p)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (s_.rows * s_.cols == 0) return {};
    const Args p{.x = device_tensor(in[0]),
                 .y = device_tensor(out[0]),
                 .rows = s_.rows,
                 .row_stride = s_.row_stride,
                 .cols = static_cast<int>(s_.cols)};
    const bool vector =
        p.cols % 8 == 0 && p.row_stride % 8 == 0 && is_aligned(p.x.data, 16) && is_aligned(p.y.data, 16);
    const bool block = p.cols > kLongRow;
    const auto kernel = vector ? (block ? softmax_rows<8, true> : softmax_rows<8, false>)
                               : (block ? softmax_rows<1, true> : softmax_rows<1, false>);
    return cuda::launch_overlapping(kName, kernel, block ? p.rows : divide_up(p.rows, kThreads / 32), kThreads, 0,
                                    stream.handle, 1, p);
  }

 private:
  const SoftmaxProblem s_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<SoftmaxKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& softmax_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG", "SHFL"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
