// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm of few rows, where the time is latency and not memory: a block per row, eight columns per
// thread, up to 4096 columns. The next load never waits for the one before it: constants are under way before the
// kernel in front has ended, gain and shift that another kernel made (adaRMS) together with x.
#include "base/buffer.h"
#include "ops/norm/norm.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "archs/planted_fault.h"
#include "tiles/cuda/axes.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/sums.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "norm/cuda_few";
constexpr int64_t kMostCols = 4096;

// Threads of a block: one for every eight columns, of the three sizes that there are kernels for.
constexpr int64_t threads_for(int64_t cols) { return cols <= 1024 ? 128 : cols <= 2048 ? 256 : 512; }

Verdict accepts(const Problem& p) {
  const NormProblem n = NormProblem::of(p);
  TS_REQUIRE(!n.pooled, "writes every row, not the mean of a group of them");
  TS_REQUIRE(is_device_number(n.x), "reads f32, f16, bf16, or e4m3 with one static f32 scale, not ", to_string(n.x));
  TS_REQUIRE(is_device_number(n.y) || n.y == kInt8PerTensor,
             "writes f32, f16, bf16, or e4m3 or i8 with one static f32 scale, not ", to_string(n.y));
  TS_REQUIRE(n.cols % 8 == 0 && n.cols <= kMostCols, "holds rows of up to ", kMostCols,
             " columns, a multiple of 8, in a block's registers, not ", n.cols);
  TS_REQUIRE(p.in[0].strides.back() == 1, "the last axis of x must be contiguous");
  TS_REQUIRE(n.lead.size() <= kMaxAxes, "the rows of x have ", n.lead.size(), " axes that cannot be merged; at most ",
             kMaxAxes, " are walked");
  for (const int64_t stride : n.lead_strides)
    TS_REQUIRE(n.rows <= 1 || stride % 8 == 0, "rows of x must begin at multiples of 8 numbers");
  for (size_t i : {1, 2}) {
    const Operand* o = p.operand(i);
    TS_REQUIRE(o == nullptr || (is_device_float(o->type) && o->dense()),
               "gain and shift must be dense f32, f16 or bf16");
  }
  TS_REQUIRE(n.then->within(kCodesOnly), kCodesOnly.says_in_order());
  TS_REQUIRE(n.rows <= kMaxDeviceElements, "too many rows for 31-bit indices");
  return {};
}

// An H200 runs 132 x 2048 threads at once. With more rows than that, kernels that take several rows per warp and have
// the next ones under way keep the memory busier.
Verdict worthwhile(const Problem& p) {
  const NormProblem n = NormProblem::of(p);
  constexpr int64_t kThreadsAtOnce = 132 * 2048;
  TS_REQUIRE(n.rows * threads_for(n.cols) <= kThreadsAtOnce, "a block for each of ", n.rows,
             " rows is more than run at once");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "FMA", .accumulator_bits = 24};
}

#ifdef __CUDACC__

struct Args {
  DeviceTensor x, y, gain, shift;  // gain, shift: data is null where absent
  DeviceAxes<1> lead;              // of the rows of x
  int cols;
  float eps;
  bool rms;
  bool gain_early, shift_early;  // constants: no kernel in front writes them
};

__device__ __forceinline__ cuda::Raw8 load_vector(const DeviceTensor& from, bool now, int col) {
  return now && from.data != nullptr ? cuda::load_raw8(from.element, from.data, col) : cuda::Raw8{};
}

// For operands that do not begin at a multiple of 16 bytes (a view inside a row): one number at a time.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) normalise_anywhere(const __grid_constant__ Args p) {
  __shared__ float scratch[2][kThreads / 32];
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const int64_t row = blockIdx.x;
  int64_t from[1];
  cuda::offsets_at(p.lead, static_cast<uint32_t>(row), from);
  const float to_code = cuda::inverse_scale_of(p.y), x_scale = cuda::scale_of(p.x),
              per_column = 1.0f / static_cast<float>(p.cols);
  const auto number = [&](int col) { return cuda::load_one(p.x.element, p.x.data, from[0] + col) * x_scale; };
  float sum = 0.0f, square = 0.0f;
  for (int col = static_cast<int>(threadIdx.x); col < p.cols; col += kThreads) sum += number(col);
  const float mean = p.rms ? 0.0f : cuda::across_block<cuda::Add, kThreads>(sum, scratch[0]) * per_column;
  for (int col = static_cast<int>(threadIdx.x); col < p.cols; col += kThreads) {
    const float d = number(col) - mean;
    square = fmaf(d, d, square);
  }
  const float inverse = rsqrtf(cuda::across_block<cuda::Add, kThreads>(square, scratch[1]) * per_column + p.eps);
  for (int col = static_cast<int>(threadIdx.x); col < p.cols; col += kThreads) {
    float v = (number(col) - mean) * inverse;
    if (p.gain.data != nullptr) v *= cuda::load_one(p.gain.element, p.gain.data, col);
    if (p.shift.data != nullptr) v += cuda::load_one(p.shift.element, p.shift.data, col);
    const int64_t at = row * p.cols + col;
    if (p.y.element == Element::i8) {
      static_cast<uint8_t*>(p.y.data)[at] = static_cast<uint8_t>(cuda::encode_i8_pair(v * to_code, 0.0f));
    } else {
      cuda::store_one(p.y.element, p.y.data, at, v * to_code);
    }
  }
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) normalise_few(const __grid_constant__ Args p) {
  __shared__ float scratch[2][kThreads / 32];
  cuda::let_next_kernel_start();
  const int64_t row = blockIdx.x;
  const int col = static_cast<int>(threadIdx.x) * 8;
  const bool own = col < p.cols;  // columns of this thread
  int64_t from[1];
  cuda::offsets_at(p.lead, static_cast<uint32_t>(row), from);
  cuda::Raw8 raw_gain = load_vector(p.gain, own && p.gain_early, col),
             raw_shift = load_vector(p.shift, own && p.shift_early, col);
  const float to_code = cuda::inverse_scale_of(p.y), x_scale = cuda::scale_of(p.x),
              per_column = 1.0f / static_cast<float>(p.cols);
  cuda::wait_for_earlier_kernels();
  const cuda::Raw8 raw = own ? cuda::load_raw8(p.x.element, p.x.data, from[0] + col) : cuda::Raw8{};
  if (!p.gain_early) raw_gain = load_vector(p.gain, own, col);
  if (!p.shift_early) raw_shift = load_vector(p.shift, own, col);

  float v[8], sum = 0.0f, square = 0.0f;
  cuda::decode8(p.x.element, raw, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] *= x_scale;
    sum += v[i];
  }
  const float mean = p.rms ? 0.0f : cuda::across_block<cuda::Add, kThreads>(sum, scratch[0]) * per_column;
#pragma unroll
  for (int i = 0; i < 8; ++i) {  // about the mean, in a second pass over registers: no cancellation
    if (!planted(Fault::kMeanKept) || i < 7) v[i] -= own ? mean : 0.0f;
    square = fmaf(v[i], v[i], square);
  }
  const float inverse = rsqrtf(cuda::across_block<cuda::Add, kThreads>(square, scratch[1]) * per_column + p.eps);
  if (!own) return;
  float gain[8], shift[8];
  cuda::decode8(p.gain.element, raw_gain, gain);
  cuda::decode8(p.shift.element, raw_shift, shift);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] *= inverse;
    if (p.gain.data != nullptr) v[i] *= gain[i];
    if (p.shift.data != nullptr) v[i] += shift[i];
    v[i] *= to_code;
  }
  const int64_t at = row * p.cols + col;
  if (p.y.element == Element::i8) {
    *reinterpret_cast<uint2*>(static_cast<uint8_t*>(p.y.data) + at) = {cuda::encode_i8_four(v),
                                                                       cuda::encode_i8_four(v + 4)};
  } else {
    cuda::store8(p.y.element, p.y.data, at, v);
  }
}

constexpr int kAnywhereThreads = 128;

class NormFew final : public Kernel {
 public:
  explicit NormFew(const Problem& p)
      : n_(NormProblem::of(p)), gain_early_(is_constant(p, 1)), shift_early_(is_constant(p, 2)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (n_.rows * n_.cols == 0) return {};
    Args p{.x = device_tensor(in[0]), .y = device_tensor(out[0]), .gain = {}, .shift = {}};
    p.lead.set(n_.lead, 1);
    p.lead.set_strides(0, n_.lead_strides, 1);
    if (n_.has_gain) p.gain = device_tensor(in[1]);
    if (n_.has_shift) p.shift = device_tensor(in[2]);
    p.cols = static_cast<int>(n_.cols);
    p.eps = n_.eps;
    p.rms = n_.kind == NormKind::kRms;
    p.gain_early = gain_early_, p.shift_early = shift_early_;
    bool aligned = true;
    for (const DeviceTensor* t : {&p.x, &p.y, &p.gain, &p.shift}) aligned = aligned && is_aligned(t->data, 16);
    if (!aligned)
      return cuda::launch_overlapping(kName, normalise_anywhere<kAnywhereThreads>, n_.rows, kAnywhereThreads, 0,
                                      stream.handle, 1, p);
    const int threads = static_cast<int>(threads_for(n_.cols));
    const auto kernel = threads == 128 ? normalise_few<128> : threads == 256 ? normalise_few<256> : normalise_few<512>;
    return cuda::launch_overlapping(kName, kernel, n_.rows, threads, 0, stream.handle, 1, p);
  }

 private:
  static bool is_constant(const Problem& p, size_t i) { return p.operand(i) != nullptr && p.operand(i)->constant; }
  const NormProblem n_;
  const bool gain_early_, shift_early_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return std::unique_ptr<Kernel>(std::make_unique<NormFew>(p)); }

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& norm_cuda_few() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .worthwhile = worthwhile,
                                .sass = shows({"LDG", "SHFL"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
