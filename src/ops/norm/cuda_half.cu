// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm of 16-bit rows up to 2048 columns, into 16 bits, e4m3 or int8; of e4m3 also the scale of each
// row, since a warp sees the whole of it. Each warp takes one row after
// the other and holds it in registers; the next two rows are under way meanwhile, which is what keeps the memory busy
// (a ViT-B row is 1.5 KiB, and an H200 wants some 30 KiB per SM in flight). Up to 1024 columns gain and shift
// stay in registers for all rows, the result's scale already in them.
#include "base/buffer.h"
#include "ops/norm/norm.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "archs/cuda/instructions.cuh"
#include "ops/norm/warp_row.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/sums.cuh"
#include "tiles/cuda/token_scale.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "norm/cuda_half";

bool is_half(const QuantType& t) { return !t.scaled() && (t.element == Element::f16 || t.element == Element::bf16); }

Verdict accepts(const Problem& p) {
  const NormProblem n = NormProblem::of(p);
  TS_REQUIRE(!n.pooled, "writes every row, not the mean of a group of them");
  TS_REQUIRE(is_half(n.x), "reads f16 or bf16, not ", to_string(n.x));
  TS_REQUIRE(n.y == n.x || n.y == kE4m3PerTensor || n.y == kE4m3PerToken || n.y == kInt8PerTensor,
             "writes the type it reads, e4m3 or i8 with one static f32 scale, or e4m3 with scales per token, not ",
             to_string(n.y));
  const RowView rows = p.in[0].rows();
  TS_REQUIRE(rows.uniform && (rows.rows == 1 || rows.row_stride % 8 == 0),
             "the rows of x must follow each other at one distance, a multiple of 16 bytes");
  TS_REQUIRE(n.cols % 8 == 0 && n.cols <= 2048,
             "holds rows of up to 2048 columns, a multiple of 8, in a warp's registers, not ", n.cols);
  for (size_t i : {1, 2}) {
    const Operand* o = p.operand(i);
    TS_REQUIRE(o == nullptr || (is_device_float(o->type) && o->dense() && o->constant),
               "gain and shift must be dense constants of f32, f16 or bf16");
  }
  TS_REQUIRE(n.then->within(kCodesOnly), kCodesOnly.says_in_order());
  TS_REQUIRE(n.rows <= kMaxDeviceElements / 2, "too many rows for 31-bit indices, some of which lie ahead");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "FMA", .accumulator_bits = 24};
}

#ifdef __CUDACC__

constexpr int kThreads = 128, kWarps = kThreads / 32;

struct Args {
  const uint16_t* x;
  void* y;
  DeviceTensor gain, shift;  // data is null where absent
  const float* y_scale;      // null where y has none
  float* token_scales;       // of rows, written
  int64_t x_row_stride;
  int rows, cols;
  bool backward;
  float eps;
  bool rms;
};

// Four bytes, the first number in the lowest: rounds to nearest even, saturates, NaN becomes 0.
__device__ __forceinline__ uint32_t pack_int8(float a, float b, float c, float d) {
  const auto code = [](float x) {
    return max(-127, __float2int_rn(x));
  };  // codes made while running stop at -127 on both sides
  uint32_t high, all;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(code(d)), "r"(code(c)));
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(code(b)), "r"(code(a)), "r"(high));
  return all;
}

template <Element kOut>
__device__ __forceinline__ void store(void* y, int64_t at, const float (&v)[8]) {
  if constexpr (kOut == Element::i8) {
    *reinterpret_cast<uint2*>(static_cast<uint8_t*>(y) + at) = {pack_int8(v[0], v[1], v[2], v[3]),
                                                                pack_int8(v[4], v[5], v[6], v[7])};
  } else {
    cuda::store8(kOut, y, at, v);
  }
}

__device__ __forceinline__ int64_t row_in_turn(const Args& p, int turn) {
  return p.backward ? p.rows - 1 - turn : turn;
}

template <int kChunks>
__device__ __forceinline__ void load_row(const Args& p, int row, cuda::WarpRow<kChunks>& r) {
  cuda::load_row(p.x + row_in_turn(p, row) * p.x_row_stride, row < p.rows, p.cols, r);
}

// A chunk of gain or shift; sending for it and decoding it are apart, so that all of them are under way at once.
template <int kChunks>
__device__ __forceinline__ cuda::Raw8 load_vector(const Args& p, const DeviceTensor& from, int chunk) {
  if (from.data == nullptr || !cuda::has_columns<kChunks>(p.cols, chunk)) return {};
  return cuda::load_raw8(from.element, from.data, (chunk * 32 + threadIdx.x % 32) * 8);
}
__device__ __forceinline__ void decode_vector(const DeviceTensor& from, const cuda::Raw8& raw, float absent,
                                              float factor, float (&v)[8]) {
  cuda::decode8(from.element, raw, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = (from.data == nullptr ? absent : v[i]) * factor;
}

// What a row of e4m3 is multiplied by to become codes; the row's scale is written. `largest`: this lane's magnitude.
__device__ __forceinline__ cuda::TokenScale scale_row(const Args& p, int64_t row, float largest) {
  const cuda::TokenScale scale = cuda::token_scale(cuda::across_warp<cuda::Max>(largest));
  if (threadIdx.x % 32 == 0) p.token_scales[row] = scale.value;
  return scale;
}

template <Element kIn, Element kOut, bool kTokens, int kChunks>
__global__ void __launch_bounds__(kThreads, kChunks <= 3   ? 4
                                            : kChunks <= 6 ? 3
                                                           : 2) normalise_rows(const __grid_constant__ Args p) {
  constexpr bool kKept = kChunks <= 4;
  cuda::let_next_kernel_start();
  const int step = static_cast<int>(gridDim.x) * kWarps,
            first = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  const float y_scale = p.y_scale == nullptr ? 1.0f : *p.y_scale;
  cuda::WarpRow<kChunks> even, odd;
  float gain[kKept ? kChunks : 1][8], shift[kKept ? kChunks : 1][8];
  if constexpr (kKept) {
    cuda::Raw8 raw_gain[kChunks], raw_shift[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      raw_gain[c] = load_vector<kChunks>(p, p.gain, c);
      raw_shift[c] = load_vector<kChunks>(p, p.shift, c);
    }
    cuda::wait_for_earlier_kernels();
    load_row(p, first, even);
    load_row(p, first + step, odd);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      decode_vector(p.gain, raw_gain[c], 1.0f, 1.0f / y_scale, gain[c]);
      decode_vector(p.shift, raw_shift[c], 0.0f, 1.0f / y_scale, shift[c]);
    }
  } else {
    cuda::wait_for_earlier_kernels();
    load_row(p, first, even);
    load_row(p, first + step, odd);
  }
  const float to_code = 1.0f / y_scale, per_column = 1.0f / static_cast<float>(p.cols);

  const auto store_chunk = [&](int row, int c, const float(&v)[8]) {
    if (cuda::has_columns<kChunks>(p.cols, c))
      store<kOut>(p.y, row_in_turn(p, row) * p.cols + (c * 32 + threadIdx.x % 32) * 8, v);
  };
  // Normalises `row`, which lies in r, and sends for row `ahead` into r as soon as r has been read.
  const auto normalise = [&](int row, cuda::WarpRow<kChunks>& r, int ahead) {
    if (row >= p.rows) return;  // the same for all lanes
    float v[kChunks][8];
    const float sum = cuda::decode_row<kIn>(r, v);
    load_row(p, ahead, r);
    const float inverse = cuda::centre_row(v, sum, p.cols, per_column, p.rms, p.eps);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int kept = kKept ? c : 0;
      if constexpr (!kKept) {
        decode_vector(p.gain, load_vector<kChunks>(p, p.gain, c), 1.0f, to_code, gain[0]);
        decode_vector(p.shift, load_vector<kChunks>(p, p.shift, c), 0.0f, to_code, shift[0]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) v[c][i] = fmaf(v[c][i] * inverse, gain[kept][i], shift[kept][i]);
      if constexpr (!kTokens) store_chunk(row, c, v[c]);
    }
    if constexpr (kTokens) {
      float largest = 0.0f;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) largest = cuda::Max::apply(largest, cuda::largest_magnitude(v[c]));
      const cuda::TokenScale scale = scale_row(p, row_in_turn(p, row), largest);
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int i = 0; i < 8; ++i) v[c][i] = scale.quotient(v[c][i]);
        store_chunk(row, c, v[c]);
      }
    }
  };

  for (int row = first; row < p.rows; row += 2 * step) {
    normalise(row, even, row + 2 * step);
    normalise(row + step, odd, row + 3 * step);
  }
}

// Operands that begin anywhere (a view inside a row), one number at a time: a warp per row.
template <Element kIn, Element kOut, bool kTokens>
__global__ void __launch_bounds__(kThreads) normalise_anywhere(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32), lane = threadIdx.x % 32;
  if (row >= p.rows) return;
  const auto number = [&](int col) { return cuda::load_one(kIn, p.x, row * p.x_row_stride + col); };
  const float columns = static_cast<float>(p.cols), to_code = p.y_scale == nullptr ? 1.0f : 1.0f / *p.y_scale;
  float sum = 0.0f, square = 0.0f;
  for (int col = lane; col < p.cols; col += 32) sum += number(col);
  const float mean = p.rms ? 0.0f : cuda::sum_across_warp(sum) / columns;
  for (int col = lane; col < p.cols; col += 32) {
    const float d = number(col) - mean;
    square = fmaf(d, d, square);
  }
  const float inverse = rsqrtf(cuda::sum_across_warp(square) / columns + p.eps);
  const auto normalised = [&](int col) {
    float v = (number(col) - mean) * inverse;
    if (p.gain.data != nullptr) v *= cuda::load_one(p.gain.element, p.gain.data, col);
    if (p.shift.data != nullptr) v += cuda::load_one(p.shift.element, p.shift.data, col);
    return v;
  };
  [[maybe_unused]] cuda::TokenScale scale;
  if constexpr (kTokens) {
    float largest = 0.0f;
    for (int col = lane; col < p.cols; col += 32) largest = cuda::Max::apply(largest, fabsf(normalised(col)));
    scale = scale_row(p, row, largest);
  }
  for (int col = lane; col < p.cols; col += 32) {
    const float v = normalised(col);
    const int64_t at = int64_t{row} * p.cols + col;
    if constexpr (kTokens) {
      cuda::store_one(kOut, p.y, at, scale.quotient(v));
    } else if constexpr (kOut == Element::i8) {
      static_cast<uint8_t*>(p.y)[at] = static_cast<uint8_t>(pack_int8(v * to_code, 0.0f, 0.0f, 0.0f));
    } else {
      cuda::store_one(kOut, p.y, at, v * to_code);
    }
  }
}

using Launcher = void (*)(Args);
struct Launchers {
  Launcher aligned, anywhere;
};

template <Element kIn, Element kOut, bool kTokens>
Launcher kernel_for(int64_t cols) {
  if (cols <= 256) return normalise_rows<kIn, kOut, kTokens, 1>;
  if (cols <= 512) return normalise_rows<kIn, kOut, kTokens, 2>;
  if (cols <= 768) return normalise_rows<kIn, kOut, kTokens, 3>;
  if (cols <= 1024) return normalise_rows<kIn, kOut, kTokens, 4>;
  if (cols <= 1536) return normalise_rows<kIn, kOut, kTokens, 6>;
  return normalise_rows<kIn, kOut, kTokens, 8>;
}
template <Element kIn, Element kOut, bool kTokens = false>
Launchers kernels_of(int64_t cols) {
  return {kernel_for<kIn, kOut, kTokens>(cols), normalise_anywhere<kIn, kOut, kTokens>};
}

template <Element kIn>
Launchers kernels_for(const NormProblem& n) {
  if (n.y == kE4m3PerToken) return kernels_of<kIn, Element::e4m3, true>(n.cols);
  if (n.y.element == Element::e4m3) return kernels_of<kIn, Element::e4m3>(n.cols);
  if (n.y.element == Element::i8) return kernels_of<kIn, Element::i8>(n.cols);
  return kernels_of<kIn, kIn>(n.cols);
}

class NormHalf final : public Kernel {
 public:
  NormHalf(const Problem& p, Launchers kernels, int64_t most_blocks)
      : n_(NormProblem::of(p)),
        backward_(p.backward),
        x_row_stride_(p.in[0].rows().row_stride),
        kernels_(kernels),
        most_blocks_(most_blocks) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (n_.rows * n_.cols == 0) return {};
    Args p{.x = static_cast<const uint16_t*>(in[0].data), .y = out[0].data, .gain = {}, .shift = {}};
    if (n_.y.dynamic) {
      p.token_scales = static_cast<float*>(out[0].scale);
    } else {
      p.y_scale = static_cast<const float*>(out[0].scale);
    }
    p.x_row_stride = n_.rows == 1 ? 0 : x_row_stride_;
    p.rows = static_cast<int>(n_.rows);
    p.cols = static_cast<int>(n_.cols);
    p.eps = n_.eps;
    p.rms = n_.kind == NormKind::kRms;
    p.backward = backward_;
    if (n_.has_gain) p.gain = device_tensor(in[1]);
    if (n_.has_shift) p.shift = device_tensor(in[2]);
    bool aligned = true;
    for (const void* at : {in[0].data, out[0].data, p.gain.data, p.shift.data}) aligned = aligned && is_aligned(at, 16);
    if (!aligned)
      return cuda::launch_overlapping(kName, kernels_.anywhere, divide_up(p.rows, kWarps), kThreads, 0, stream.handle,
                                      1, p);
    // As few blocks as do it in the same number of rounds: every warp then has the same number of rows, or one less.
    const int64_t rounds = divide_up(p.rows, most_blocks_ * kWarps), blocks = divide_up(p.rows, rounds * kWarps);
    return cuda::launch_overlapping(kName, kernels_.aligned, blocks, kThreads, 0, stream.handle, 1, p);
  }

 private:
  const NormProblem n_;
  const bool backward_;
  const int64_t x_row_stride_;
  const Launchers kernels_;
  const int64_t most_blocks_;  // that run at once
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  const NormProblem n = NormProblem::of(p);
  const Launchers kernels = n.x.element == Element::f16 ? kernels_for<Element::f16>(n) : kernels_for<Element::bf16>(n);
  int device = 0, sms = 0, blocks = 0;
  TS_TRY(cuda::cuda_status(kName, cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status(kName, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)));
  TS_TRY(
      cuda::cuda_status(kName, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.aligned, kThreads, 0)));
  if (blocks < 1) return machine_error(cat(kName, ": the kernel does not fit this GPU"));
  return std::unique_ptr<Kernel>(std::make_unique<NormHalf>(p, kernels, int64_t{sms} * blocks));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& norm_cuda_half() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG", "SHFL"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
