// SPDX-License-Identifier: Apache-2.0
// conv2d/cuda_depthwise: every channel is a group of its own, so there is no product of matrices: fp32 FMA on decoded
// codes, limited by memory. A thread has eight neighbouring channels (one where rows do not allow it) of four
// neighbouring pixels of a line; a block has 64 channels, whose weights it turns around in shared memory, as many lines
// of the kernel at a time as fit. Where the compiler knows the kernel's columns, a pixel of x is loaded once for all
// windows of a thread.
#include "archs/planted_fault.h"
#include "ops/conv2d/cuda_channels.h"

#ifdef __CUDACC__
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/program.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "conv2d/cuda_depthwise";
constexpr int kChannels = 64, kPixels = 4, kThreads = 256;
constexpr int kRow = kChannels + 4;  // floats between taps in shared memory: neighbouring taps lie in other banks
constexpr int kMostTaps = 160;       // in shared memory: 42.5 KB

bool is_code(const QuantType& t) { return is_device_number(t) || is_device_int8(t); }
bool is_weight(const QuantType& t) {
  QuantType of_tensor = t;
  if (t.scale == ScaleLevel{Granularity::kChannel, Element::f32}) of_tensor.scale.granularity = Granularity::kTensor;
  return is_code(of_tensor);
}

Verdict accepts(const Problem& p) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  TS_REQUIRE(x != nullptr && w != nullptr, "wants x and w");
  const Conv2dProblem q = Conv2dProblem::of(p);
  TS_REQUIRE(q.c == 1 && q.n == 1, "wants every channel to be a group of its own, not groups of ", q.c,
             " channels and ", q.n, " results");
  TS_REQUIRE(!q.sparse24, "multiplies dense weights; 2:4 sparsity was asked for");
  TS_REQUIRE(is_code(x->type), "reads x as f32, f16, bf16, or e4m3 or int8 with one static f32 scale, not ",
             to_string(x->type));
  TS_REQUIRE(is_weight(w->type),
             "reads w as f32, f16, bf16, e4m3 or int8, with an f32 scale for all or for each "
             "channel, not ",
             to_string(w->type));
  TS_REQUIRE(is_code(p.out[0].type), "writes f32, f16, bf16, or e4m3 or int8 with one static f32 scale, not ",
             to_string(p.out[0].type));
  TS_REQUIRE(x->layout == Layout::kRows && x->strides[3] == 1, "reads x with its channels last");
  TS_REQUIRE(w->layout == Layout::kRows && w->rows().uniform, "reads w in uniform rows");
  TS_REQUIRE(q.kw <= kMostTaps, "a line of the kernel has at most ", kMostTaps, " taps, not ", q.kw);
  if (Verdict v = accepts_device_windows(q); !v) return v;
  return accepts_device_program(p, q.pixels() * q.groups);
}

Arithmetic arithmetic(const Problem& p) {
  return {.computed = Element::f32,
          .instruction = "FMA on decoded codes",
          .accumulator_bits = 24,
          .activation_error = device_program_error(p.then, p.out[0].type)};
}

#ifdef __CUDACC__

struct Args {
  DeviceTensor x, w;
  DeviceSumScales scales;
  DeviceWindows at;
  DeviceSteps then;
  int64_t w_row;            // elements between rows of w
  FastDivide runs, blocks;  // runs of pixels in a line; blocks of channels
  FastDivide taps;          // of the lines of the kernel that are in shared memory at a time
  uint32_t run_count;       // in all
  int lines;                // of the kernel at a time
};

// N numbers of an element that the compiler knows.
template <Element kElement, int N>
__device__ __forceinline__ void load_channels(const void* data, int64_t index, float (&v)[N]) {
  if constexpr (kElement != Element::i8) {
    cuda::load_numbers<N>(kElement, data, index, v);
  } else {
    const int8_t* codes = static_cast<const int8_t*>(data) + index;
    if constexpr (N == 8) {
      const uint2 raw = *reinterpret_cast<const uint2*>(codes);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        v[i] = static_cast<float>(static_cast<int8_t>((i < 4 ? raw.x : raw.y) >> (8 * (i % 4)) & 0xff));
    } else {
      v[0] = static_cast<float>(codes[0]);
    }
  }
}

__device__ __forceinline__ float load_code(Element e, const void* data, int64_t index) {
  return e == Element::i8 ? static_cast<float>(static_cast<const int8_t*>(data)[index])
                          : cuda::load_one(e, data, index);
}

template <int N>
__device__ __forceinline__ void store_codes(const DeviceTensor& y, int64_t index, float (&v)[N]) {
  const float inverse = cuda::inverse_scale_of(y);
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] *= inverse;
  if (y.element != Element::i8) {
    cuda::store_numbers<N>(y.element, y.data, index, v);
  } else if constexpr (N == 8) {
    *reinterpret_cast<uint2*>(static_cast<int8_t*>(y.data) + index) = {cuda::encode_i8_four(v),
                                                                       cuda::encode_i8_four(v + 4)};
  } else {
    static_cast<int8_t*>(y.data)[index] = static_cast<int8_t>(cuda::encode_i8_pair(v[0], 0.0f) & 0xff);
  }
}

// Four windows side by side, N channels of them.
template <int N>
struct Sums {
  float of[kPixels][N] = {};
};

// What a thread has: N channels from `channel`, windows from pixel `column` of line `line`.
struct Place {
  uint32_t row;   // of results, of the first window
  int64_t image;  // of x, and its first channel
  int line, column, channel;
  bool exists;
};

template <int N>
__device__ __forceinline__ Place place_of(const Args& p, uint32_t block) {
  constexpr int kUnits = kChannels / N;
  const uint32_t part = p.blocks.quotient(block);
  const uint32_t run = part * (kThreads / kUnits) + threadIdx.x / kUnits;
  const int channel = static_cast<int>((block - part * p.blocks.divisor) * kChannels + threadIdx.x % kUnits * N);
  const uint32_t line = p.runs.quotient(run), image = p.at.out_height.quotient(line);
  const int column = static_cast<int>(run - line * p.runs.divisor) * kPixels;
  return {.row = line * p.at.out_width + column,
          .image = image * p.at.image_stride + channel,
          .line = static_cast<int>(line - image * p.at.out_height.divisor),
          .column = column,
          .channel = channel,
          .exists = run < p.run_count && channel < p.then.cols};
}

// The thread's weights of a tap.
template <int N>
__device__ __forceinline__ void read_tap(const float* w, float (&by)[N]) {
  if constexpr (N == 8) {
    const float4 low = *reinterpret_cast<const float4*>(w), high = *reinterpret_cast<const float4*>(w + 4);
    by[0] = low.x, by[1] = low.y, by[2] = low.z, by[3] = low.w;
    by[4] = high.x, by[5] = high.y, by[6] = high.z, by[7] = high.w;
  } else {
    by[0] = w[0];
  }
}

// A line of the kernel over a line of x. w: its taps, kRow floats apart.
template <Element kElement, int N, int kWidth, int kStep>
__device__ __forceinline__ void add_known_line(const Args& p, const void* x, int64_t line, int left, const float* w,
                                               Sums<N>& sums) {
  constexpr int kRead = (kPixels - 1) * kStep + kWidth;
  float v[kRead][N];
#pragma unroll
  for (int r = 0; r < kRead; ++r) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[r][i] = 0.0f;
    if (static_cast<unsigned>(left + r) < static_cast<unsigned>(p.at.width))
      load_channels<kElement, N>(x, line + (left + r) * p.at.pixel_stride, v[r]);
  }
#pragma unroll
  for (int t = 0; t < kWidth; ++t) {
    float by[N];
    read_tap<N>(w + t * kRow, by);
#pragma unroll
    for (int j = 0; j < kPixels; ++j) {
#pragma unroll
      for (int i = 0; i < N; ++i) sums.of[j][i] = fmaf(v[j * kStep + t][i], by[i], sums.of[j][i]);
    }
  }
}

template <Element kElement, int N>
__device__ __forceinline__ void add_any_line(const Args& p, const void* x, int64_t line, int left, const float* w,
                                             Sums<N>& sums) {
  for (int t = 0; t < p.at.kw; ++t) {
    float by[N];
    read_tap<N>(w + t * kRow, by);
#pragma unroll
    for (int j = 0; j < kPixels; ++j) {
      const int pixel = left + j * p.at.sw + t * p.at.dw;
      if (static_cast<unsigned>(pixel) >= static_cast<unsigned>(p.at.width)) continue;
      float v[N];
      load_channels<kElement, N>(x, line + pixel * p.at.pixel_stride, v);
#pragma unroll
      for (int i = 0; i < N; ++i) sums.of[j][i] = fmaf(v[i], by[i], sums.of[j][i]);
    }
  }
}

// The block's weights of kernel lines [first, first + lines), a tap's channels side by side.
__device__ __forceinline__ void stage_weights(const Args& p, int block_channel, int first, int lines, float* to) {
  const int taps = lines * p.at.kw;
  for (int i = threadIdx.x; i < taps * kChannels; i += kThreads) {
    // Neighbouring threads read neighbouring taps of a row of w.
    const int channel = lines == p.lines ? static_cast<int>(p.taps.quotient(i)) : i / taps;
    const int tap = i - channel * taps, row = block_channel + channel;
    const int read = planted(Fault::kTapsTurned) ? taps - 1 - tap : tap;
    to[tap * kRow + channel] =
        row < p.then.cols ? load_code(p.w.element, p.w.data, row * p.w_row + first * p.at.kw + read) : 0.0f;
  }
}

template <int N>
__device__ __forceinline__ void finish(const Args& p, const Place& place, Sums<N>& sums) {
  const float common = cuda::scale_of(p.scales.x) * (p.scales.by_row ? 1.0f : cuda::scale_of(p.scales.w));
#pragma unroll
  for (int j = 0; j < kPixels; ++j) {
    if (place.column + j >= p.at.out_width) break;
#pragma unroll
    for (int i = 0; i < N; ++i) sums.of[j][i] *= p.scales.by_row ? common * p.scales.w[place.channel + i] : common;
    const uint32_t row = place.row + j;
    cuda::run_program<N>(p.then, row, place.channel, sums.of[j]);
    store_codes<N>(p.then.y, int64_t{row} * p.then.cols + place.channel, sums.of[j]);
  }
}

// kWidth: columns of the kernel, whose windows are kStep pixels apart and whose taps are neighbours; 0: any.
template <Element kElement, int N, int kWidth, int kStep>
__global__ void __launch_bounds__(kThreads) convolve_channels(const __grid_constant__ Args p) {
  extern __shared__ __align__(16) float weights[];
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const Place place = place_of<N>(p, blockIdx.x);
  const int block_channel = place.channel - static_cast<int>(threadIdx.x % (kChannels / N)) * N;
  Sums<N> sums;
  for (int first = 0; first < p.at.kh; first += p.lines) {
    const int lines = min(p.lines, p.at.kh - first);
    __syncthreads();  // nobody reads the weights before these any more
    stage_weights(p, block_channel, first, lines, weights);
    __syncthreads();
    if (!place.exists) continue;
    for (int di = 0; di < lines; ++di) {
      const int line = place.line * p.at.sh + (first + di) * p.at.dh - p.at.top,
                left = place.column * p.at.sw - p.at.left;
      if (static_cast<unsigned>(line) >= static_cast<unsigned>(p.at.height)) continue;
      const float* w = weights + di * p.at.kw * kRow + (place.channel - block_channel);
      const int64_t from = place.image + line * p.at.line_stride;
      if constexpr (kWidth > 0) {
        add_known_line<kElement, N, kWidth, kStep>(p, p.x.data, from, left, w, sums);
      } else {
        add_any_line<kElement, N>(p, p.x.data, from, left, w, sums);
      }
    }
  }
  if (place.exists) finish<N>(p, place, sums);
}

class DepthwiseKernel final : public Kernel {
 public:
  explicit DepthwiseKernel(const Problem& p) : problem_(p), q_(Conv2dProblem::of(problem_)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (q_.pixels() * q_.groups == 0) return {};
    Args p{.x = device_tensor(in[0]), .w = device_tensor(in[1]), .scales = DeviceSumScales::of(in[0], in[1])};
    p.at = DeviceWindows::of(q_);
    p.then = device_steps(problem_, q_.pixels(), q_.groups, in, out[0], {});
    p.w_row = problem_.in[1].rows().row_stride;
    const int64_t runs = divide_up(q_.out_width, kPixels), blocks = divide_up(q_.groups, kChannels);
    p.runs = FastDivide(static_cast<uint32_t>(runs));
    p.blocks = FastDivide(static_cast<uint32_t>(blocks));
    p.run_count = static_cast<uint32_t>(runs * q_.out_height * q_.batch);
    p.lines = static_cast<int>(std::min(q_.kh, kMostTaps / q_.kw));
    p.taps = FastDivide(static_cast<uint32_t>(p.lines * q_.kw));
    bool vector = takes_eight(p.then) && is_aligned(p.x.data, 16);
    for (const int64_t stride : {p.at.image_stride, p.at.line_stride, p.at.pixel_stride})
      vector = vector && stride % 8 == 0;
    const int64_t runs_of_block = kThreads / (kChannels / (vector ? 8 : 1));
    const size_t bytes = sizeof(float) * static_cast<size_t>(p.lines * p.at.kw * kRow);
    return cuda::launch_overlapping(kName, kernel_of(p.x.element, vector),
                                    divide_up(p.run_count, runs_of_block) * blocks, kThreads, bytes, stream.handle, 1,
                                    p);
  }

 private:
  using Function = void (*)(Args);

  static bool takes_eight(const DeviceSteps& steps) { return cuda::takes_eight(steps); }
  Function kernel_of(Element x, bool vector) const {
    switch (x) {
      case Element::f16:
        return of_width<Element::f16>(vector);
      case Element::bf16:
        return of_width<Element::bf16>(vector);
      case Element::e4m3:
        return of_width<Element::e4m3>(vector);
      case Element::i8:
        return of_width<Element::i8>(vector);
      default:
        return of_width<Element::f32>(vector);
    }
  }
  template <Element kElement>
  Function of_width(bool vector) const {
    if (!vector) return convolve_channels<kElement, 1, 0, 0>;
    const bool neighbours = q_.dw == 1;
    if (neighbours && q_.sw == 1 && q_.kw == 3) return convolve_channels<kElement, 8, 3, 1>;
    if (neighbours && q_.sw == 2 && q_.kw == 3) return convolve_channels<kElement, 8, 3, 2>;
    if (neighbours && q_.sw == 1 && q_.kw == 5) return convolve_channels<kElement, 8, 5, 1>;
    if (neighbours && q_.sw == 1 && q_.kw == 7) return convolve_channels<kElement, 8, 7, 1>;
    return convolve_channels<kElement, 8, 0, 0>;
  }

  const Problem problem_;
  const Conv2dProblem q_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<DepthwiseKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& conv2d_cuda_depthwise() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = {.rules = {{.must = {"LDG", "FFMA"}}}, .local = kCalledFunctions},
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
