// SPDX-License-Identifier: Apache-2.0
// Reductions over the last axis, any strides. Where that axis is contiguous a warp takes a row; where another axis is
// (mean over tokens), 32 lanes take neighbouring results, eight each where they are aligned, and 8 warps share the
// reduced axis. Sums are fp32, in a fixed order. Integers (where a token stands) and f64 are reduced in f64, a thread
// per result.
#include "base/buffer.h"
#include "ops/reduce/reduce.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"
#include "tiles/strided.h"

#ifdef __CUDACC__
#include "tiles/cuda/axes.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/sums.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "reduce/cuda";

ReduceProblem merged(const Problem& p) {
  ReduceProblem r = ReduceProblem::of(p);
  std::vector<Shape> strides = {r.strides, dense_strides(r.shape)};
  merge_axes(r.shape, strides);
  r.strides = strides[0];
  return r;
}

bool all_numbers(const ReduceProblem& r) { return is_device_number(r.x) && is_device_number(r.y); }

Verdict accepts(const Problem& p) {
  const ReduceProblem r = merged(p);
  TS_REQUIRE(is_device_type(r.x) && is_device_type(r.y),
             "reads and writes plain types and e4m3 with one static f32 scale, not ", to_string(r.x), " and ",
             to_string(r.y));
  TS_REQUIRE(p.in[0].layout == Layout::kRows, "x must lie in rows");
  TS_REQUIRE(r.shape.size() <= kMaxAxes, "x has ", r.shape.size(), " axes that cannot be merged; at most ", kMaxAxes,
             " are walked");
  TS_REQUIRE(elements(r.shape) <= kMaxDeviceElements && r.length <= kMaxDeviceElements,
             "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem& p) {
  const bool numbers = all_numbers(ReduceProblem::of(p));
  return {.computed = numbers ? Element::f32 : Element::f64,
          .instruction = numbers ? "FADD" : "DADD",
          .accumulator_bits = numbers ? 24 : 53};
}

#ifdef __CUDACC__

constexpr int kThreads = 256, kSlices = kThreads / 32;

enum class Fn : uint8_t { kSum, kSquares, kMax, kMin };

struct Args {
  DeviceTensor x, y;
  DeviceAxes<1> axes;
  uint32_t count;  // of results
  int length;
  int64_t length_stride;
  Fn fn;
  float factor;      // on the result: 1 / length for the mean
  bool mean, whole;  // whole: the result is an integer, rounded towards zero
};

// Everything is a sum or a maximum: min is the negated maximum of negated numbers.
__device__ __forceinline__ float enter(Fn fn, float v) { return fn == Fn::kMin ? -v : fn == Fn::kSquares ? v * v : v; }
__device__ __forceinline__ bool is_sum(Fn fn) { return fn == Fn::kSum || fn == Fn::kSquares; }
__device__ __forceinline__ float neutral(Fn fn) { return is_sum(fn) ? cuda::Add::kNeutral : cuda::Max::kNeutral; }
__device__ __forceinline__ float join(Fn fn, float a, float b) {
  return is_sum(fn) ? cuda::Add::apply(a, b) : cuda::Max::apply(a, b);
}
__device__ __forceinline__ void leave(const Args& p, uint32_t i, float v) {
  if (p.fn == Fn::kMin) v = -v;
  cuda::store_one(p.y.element, p.y.data, i, v * p.factor * cuda::inverse_scale_of(p.y));
}

// N numbers at a time along the reduced axis (8: it is contiguous and aligned).
template <int N>
__global__ void __launch_bounds__(kThreads) reduce_by_warp(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * kSlices + threadIdx.x / 32;
  if (i >= p.count) return;
  int64_t at[1];
  cuda::offsets_at(p.axes, i, at);
  const float scale = cuda::scale_of(p.x);
  float total = neutral(p.fn);
  for (int c = (threadIdx.x % 32) * N; c < p.length; c += 32 * N) {
    float v[N];
    cuda::load_numbers<N>(p.x.element, p.x.data, at[0] + c * p.length_stride, v);
#pragma unroll
    for (int e = 0; e < N; ++e) total = join(p.fn, total, enter(p.fn, v[e] * scale));
  }
  total = is_sum(p.fn) ? cuda::across_warp<cuda::Add>(total) : cuda::across_warp<cuda::Max>(total);
  if (threadIdx.x % 32 == 0) leave(p, i, total);
}

// N neighbouring results of a lane (8: they and what they are made of lie side by side, aligned).
template <int N>
__global__ void __launch_bounds__(kThreads) reduce_across(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  __shared__ float partial[kSlices][32 * N];
  const int lane = threadIdx.x % 32, slice = threadIdx.x / 32;
  const uint32_t first = blockIdx.x * 32 * N, i = first + lane * N;
  float total[N];
#pragma unroll
  for (int e = 0; e < N; ++e) total[e] = neutral(p.fn);
  if (i < p.count) {
    int64_t at[1];
    cuda::offsets_at(p.axes, i, at);
    const float scale = cuda::scale_of(p.x);
    // Several rows are under way before the first is added.
    constexpr int kAhead = 8;
    const auto add = [&](const float(&v)[N]) {
#pragma unroll
      for (int e = 0; e < N; ++e) total[e] = join(p.fn, total[e], enter(p.fn, v[e] * scale));
    };
    const auto place = [&](int c) { return at[0] + c * p.length_stride; };
    int c = slice;
    if constexpr (N == 8) {
      for (; c + (kAhead - 1) * kSlices < p.length; c += kSlices * kAhead) {
        cuda::Raw8 raw[kAhead];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) raw[a] = cuda::load_raw8(p.x.element, p.x.data, place(c + a * kSlices));
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          float v[N];
          cuda::decode8(p.x.element, raw[a], v);
          add(v);
        }
      }
    }
    for (; c < p.length; c += kSlices) {
      float v[N];
      cuda::load_numbers<N>(p.x.element, p.x.data, place(c), v);
      add(v);
    }
  }
#pragma unroll
  for (int e = 0; e < N; ++e) partial[slice][lane * N + e] = total[e];
  __syncthreads();
  const uint32_t own = first + threadIdx.x;
  if (threadIdx.x >= 32 * N || own >= p.count) return;
  float all = partial[0][threadIdx.x];
#pragma unroll
  for (int s = 1; s < kSlices; ++s) all = join(p.fn, all, partial[s][threadIdx.x]);
  leave(p, own, all);
}

__global__ void __launch_bounds__(kThreads) reduce_any(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= p.count) return;
  int64_t at[1];
  cuda::offsets_at(p.axes, i, at);
  double total = 0.0;
  for (int c = 0; c < p.length; ++c) {
    const double v = cuda::load_any(p.x.element, p.x.data, at[0] + c * p.length_stride) * cuda::scale_of(p.x);
    if (c == 0) {
      total = p.fn == Fn::kSquares ? v * v : v;
    } else if (is_sum(p.fn)) {
      total += p.fn == Fn::kSquares ? v * v : v;
    } else {
      total = v != v || (p.fn == Fn::kMax ? v > total : v < total) ? v : total;
    }
  }
  if (p.mean) total /= p.length;
  if (p.whole) total = trunc(total);
  cuda::store_any(p.y.element, p.y.data, i, total * cuda::inverse_scale_of(p.y));
}

class ReduceKernel final : public Kernel {
 public:
  explicit ReduceKernel(const Problem& p) : r_(merged(p)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    const int64_t count = elements(r_.shape);
    if (count == 0) return {};
    Args p{.x = device_tensor(in[0]), .y = device_tensor(out[0])};
    p.axes.set(r_.shape, 1);
    p.axes.set_strides(0, r_.strides, 1);
    p.count = static_cast<uint32_t>(count);
    p.length = static_cast<int>(r_.length);
    p.length_stride = r_.length_stride;
    p.fn = r_.fn == "max" ? Fn::kMax : r_.fn == "min" ? Fn::kMin : r_.fn == "sum_squares" ? Fn::kSquares : Fn::kSum;
    p.factor = r_.fn == "mean" ? 1.0f / static_cast<float>(r_.length) : 1.0f;
    p.mean = r_.fn == "mean";
    p.whole = info(r_.y.element).kind == ElementKind::kInteger;
    if (!all_numbers(r_))
      return cuda::launch_overlapping(kName, reduce_any, divide_up(count, kThreads), kThreads, 0, stream.handle, 1, p);
    // Eight neighbours at a time: along the reduced axis, or across it.
    const bool across = r_.length_stride != 1 && r_.strides.back() == 1 && count > 1;
    bool vector = is_aligned(p.x.data, 16) && (across ? r_.length_stride % 8 == 0 && r_.shape.back() % 8 == 0
                                                      : r_.length_stride == 1 && r_.length % 8 == 0);
    for (size_t a = 0; a + (across ? 1 : 0) < r_.shape.size(); ++a)
      vector = vector && (r_.strides[a] % 8 == 0 || r_.shape[a] == 1);
    if (across) {
      return cuda::launch_overlapping(kName, vector ? reduce_across<8> : reduce_across<1>,
                                      divide_up(count, vector ? 256 : 32), kThreads, 0, stream.handle, 1, p);
    }
    return cuda::launch_overlapping(kName, vector ? reduce_by_warp<8> : reduce_by_warp<1>, divide_up(count, kSlices),
                                    kThreads, 0, stream.handle, 1, p);
  }

 private:
  const ReduceProblem r_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<ReduceKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& reduce_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
