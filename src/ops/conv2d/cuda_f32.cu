// SPDX-License-Identifier: Apache-2.0
// conv2d/cuda_f32: convolutions in fp32, for plans that ask for it; no tensor cores. A block makes 128 windows x 64
// results of a group, a thread 8 x 4 of them; 16 products deep, pieces of x and w go through shared memory, the next
// ones through registers meanwhile. Any window, any groups.
#include "archs/planted_fault.h"
#include "ops/conv2d/cuda_channels.h"

#ifdef __CUDACC__
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/program.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "conv2d/cuda_f32";
constexpr int kRows = 128, kCols = 64, kDeep = 16, kThreads = 256, kRowsOfThread = 8, kColsOfThread = 4;

Verdict accepts(const Problem& p) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  TS_REQUIRE(x != nullptr && w != nullptr, "wants x and w");
  const Conv2dProblem q = Conv2dProblem::of(p);
  TS_REQUIRE(!q.sparse24, "multiplies dense weights; 2:4 sparsity was asked for");
  TS_REQUIRE(x->type == QuantType(Element::f32) && w->type == x->type, "multiplies f32, not ", to_string(x->type),
             " and ", to_string(w->type));
  TS_REQUIRE(is_device_number(p.out[0].type), "writes f32, f16, bf16, or e4m3 with one static f32 scale, not ",
             to_string(p.out[0].type));
  TS_REQUIRE(x->layout == Layout::kRows && x->strides[3] == 1, "reads x with its channels last");
  TS_REQUIRE(w->layout == Layout::kRows && w->rows().uniform, "reads w in uniform rows");
  if (Verdict v = accepts_device_windows(q); !v) return v;
  return accepts_device_program(p, q.pixels() * q.groups * q.n);
}

Arithmetic arithmetic(const Problem& p) {
  return {.computed = Element::f32,
          .instruction = "FMA (FFMA)",
          .accumulator_bits = 24,
          .activation_error = device_program_error(p.then, p.out[0].type)};
}

#ifdef __CUDACC__

struct Args {
  const float *x, *w;
  DeviceWindows at;
  DeviceSteps then;
  int64_t w_row;                         // elements between rows of w
  FastDivide out_width, c, kw;           // c: channels of a group
  FastDivide col_tiles, tiles_of_group;  // of all groups; of one
  int k, n;                              // of a group
  bool eight;                            // a thread may take eight neighbours of a row of y
};

constexpr int kOfX = kRows * kDeep / kThreads, kOfW = kCols * kDeep / kThreads;  // numbers that a thread brings
static_assert(kThreads % kDeep == 0 && (kRows / kRowsOfThread) * (kCols / kColsOfThread) == kThreads);

// Shared memory: operands with products outside and four floats of room against conflicts of banks, then the sums.
struct Pieces {
  float x[kDeep][kRows + 4], w[kDeep][kCols + 4];
};
union Shared {
  Pieces pieces;
  float sums[kRows][kCols];
};

// The corners of the windows that a thread brings pieces of, and its rows of w.
class Reader {
 public:
  __device__ __forceinline__ Reader(const Args& p, uint32_t first_row, int group, int first_col)
      : p_(p), deep_(static_cast<int>(threadIdx.x) % kDeep), w_(static_cast<int64_t>(group) * p.n * p.w_row) {
#pragma unroll
    for (int e = 0; e < kOfX; ++e) {
      const uint32_t row = first_row + threadIdx.x / kDeep + e * (kThreads / kDeep);
      const uint32_t line = p.out_width.quotient(row), image = p.at.out_height.quotient(line);
      exists_[e] = row < p.then.rows;
      image_[e] = image * p.at.image_stride + static_cast<int64_t>(group) * p.c.divisor;
      top_[e] = static_cast<int>(line - image * p.at.out_height.divisor) * p.at.sh - p.at.top;
      left_[e] = static_cast<int>(row - line * p.out_width.divisor) * p.at.sw - p.at.left;
    }
#pragma unroll
    for (int e = 0; e < kOfW; ++e) {
      const int col = first_col + static_cast<int>(threadIdx.x) / kDeep + e * (kThreads / kDeep);
      col_[e] = col < p.n ? col : -1;
    }
  }

  // Products from `first`.
  __device__ __forceinline__ void load(int first, float (&x)[kOfX], float (&w)[kOfW]) const {
    const int k = first + deep_;
    const bool inside = k < p_.k;
    uint32_t tap = p_.c.quotient(k), line = p_.kw.quotient(tap);
    const int channel = k - static_cast<int>(tap * p_.c.divisor);
    if (planted(Fault::kTapsTurned) && inside) {
      const uint32_t turned = p_.k / p_.c.divisor - 1 - tap;
      tap = turned, line = p_.kw.quotient(turned);
    }
    const int down = static_cast<int>(line) * p_.at.dh, right = static_cast<int>(tap - line * p_.kw.divisor) * p_.at.dw;
#pragma unroll
    for (int e = 0; e < kOfX; ++e) {
      const int i = top_[e] + down, j = left_[e] + right;
      const bool there = inside && exists_[e] && static_cast<unsigned>(i) < static_cast<unsigned>(p_.at.height) &&
                         static_cast<unsigned>(j) < static_cast<unsigned>(p_.at.width);
      x[e] = there ? p_.x[image_[e] + i * p_.at.line_stride + j * p_.at.pixel_stride + channel] : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < kOfW; ++e) w[e] = inside && col_[e] >= 0 ? p_.w[w_ + col_[e] * p_.w_row + k] : 0.0f;
  }

  __device__ __forceinline__ void write(Pieces& to, const float (&x)[kOfX], const float (&w)[kOfW]) const {
    const int at = static_cast<int>(threadIdx.x) / kDeep;
#pragma unroll
    for (int e = 0; e < kOfX; ++e) to.x[deep_][at + e * (kThreads / kDeep)] = x[e];
#pragma unroll
    for (int e = 0; e < kOfW; ++e) to.w[deep_][at + e * (kThreads / kDeep)] = w[e];
  }

 private:
  const Args& p_;
  const int deep_;
  const int64_t w_;
  int64_t image_[kOfX];
  int top_[kOfX], left_[kOfX], col_[kOfW];
  bool exists_[kOfX];
};

__device__ __forceinline__ void multiply(const Pieces& from, int row, int col,
                                         float (&sums)[kRowsOfThread][kColsOfThread]) {
#pragma unroll
  for (int k = 0; k < kDeep; ++k) {
    const float4 low = *reinterpret_cast<const float4*>(&from.x[k][row]),
                 high = *reinterpret_cast<const float4*>(&from.x[k][row + 4]),
                 by = *reinterpret_cast<const float4*>(&from.w[k][col]);
    const float x[kRowsOfThread] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const float w[kColsOfThread] = {by.x, by.y, by.z, by.w};
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
#pragma unroll
      for (int c = 0; c < kColsOfThread; ++c) sums[r][c] = fmaf(x[r], w[c], sums[r][c]);
    }
  }
}

// The program on N neighbouring sums at a time, one after the other: the program's code stands here once.
template <int N>
__device__ __forceinline__ void finish(const Args& p, const float (&sums)[kRows][kCols], uint32_t first_row, int group,
                                       int first_col) {
#pragma unroll 1
  for (int i = threadIdx.x; i < kRows * kCols / N; i += kThreads) {
    const int row = i / (kCols / N), col = i % (kCols / N) * N;
    if (first_row + row >= p.then.rows || first_col + col >= p.n) continue;
    const uint32_t y_row = first_row + row;
    const int64_t y_col = static_cast<int64_t>(group) * p.n + first_col + col;
    const float inverse = cuda::inverse_scale_of(p.then.y);
    float v[N];
#pragma unroll
    for (int e = 0; e < N; ++e) v[e] = sums[row][col + e];
    cuda::run_program<N>(p.then, y_row, y_col, v);
#pragma unroll
    for (int e = 0; e < N; ++e) v[e] *= inverse;
    cuda::store_numbers<N>(p.then.y.element, p.then.y.data, y_row * p.then.cols + y_col, v);
  }
}

__global__ void __launch_bounds__(kThreads) convolve_f32(const __grid_constant__ Args p) {
  __shared__ __align__(16) Shared shared;
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t row_tile = p.col_tiles.quotient(blockIdx.x), tile = blockIdx.x - row_tile * p.col_tiles.divisor;
  const int group = static_cast<int>(p.tiles_of_group.quotient(tile));
  const int first_col = static_cast<int>(tile - group * p.tiles_of_group.divisor) * kCols;
  const uint32_t first_row = row_tile * kRows;
  const int row = static_cast<int>(threadIdx.x) / (kCols / kColsOfThread) * kRowsOfThread,
            col = static_cast<int>(threadIdx.x) % (kCols / kColsOfThread) * kColsOfThread;
  const Reader reader(p, first_row, group, first_col);
  float sums[kRowsOfThread][kColsOfThread] = {}, x[kOfX], w[kOfW];
  reader.load(0, x, w);
  for (int k = 0; k < p.k; k += kDeep) {
    __syncthreads();  // nobody reads the pieces before these any more
    reader.write(shared.pieces, x, w);
    __syncthreads();
    if (k + kDeep < p.k) reader.load(k + kDeep, x, w);
    multiply(shared.pieces, row, col, sums);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRowsOfThread; ++r)
    *reinterpret_cast<float4*>(&shared.sums[row + r][col]) = {sums[r][0], sums[r][1], sums[r][2], sums[r][3]};
  __syncthreads();
  if (p.eight) {
    finish<8>(p, shared.sums, first_row, group, first_col);
  } else {
    finish<1>(p, shared.sums, first_row, group, first_col);
  }
}

class FloatConvolution final : public Kernel {
 public:
  explicit FloatConvolution(const Problem& p) : problem_(p), q_(Conv2dProblem::of(problem_)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    const int64_t cols = q_.groups * q_.n;
    if (q_.pixels() * cols == 0) return {};
    Args p{.x = static_cast<const float*>(in[0].data), .w = static_cast<const float*>(in[1].data)};
    p.at = DeviceWindows::of(q_);
    p.then = device_steps(problem_, q_.pixels(), cols, in, out[0], {});
    p.w_row = problem_.in[1].rows().row_stride;
    const auto divide = [](int64_t by) { return FastDivide(static_cast<uint32_t>(by)); };
    const int64_t of_group = divide_up(q_.n, int64_t{kCols});
    p.out_width = divide(q_.out_width), p.c = divide(q_.c), p.kw = divide(q_.kw);
    p.col_tiles = divide(of_group * q_.groups), p.tiles_of_group = divide(of_group);
    p.k = static_cast<int>(q_.k), p.n = static_cast<int>(q_.n);
    p.eight = cuda::takes_eight(p.then) && q_.n % 8 == 0;
    return cuda::launch_overlapping(kName, convolve_f32, divide_up(q_.pixels(), int64_t{kRows}) * of_group * q_.groups,
                                    kThreads, 0, stream.handle, 1, p);
  }

 private:
  const Problem problem_;
  const Conv2dProblem q_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<FloatConvolution>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& conv2d_cuda_f32() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = {.rules = {{.must = {"LDG", "FFMA"}}}, .local = kCalledFunctions},
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
