// SPDX-License-Identifier: Apache-2.0
// Rotary embedding on the device: a thread turns eight pairs, or carries eight of the numbers that pass through, in
// 16-byte loads where strides and addresses allow it; else one pair or number.
#include "base/buffer.h"
#include "ops/rotary/rotary.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "rotary/cuda";

Verdict accepts(const Problem& p) {
  const RotaryProblem r = RotaryProblem::of(p);
  for (const QuantType& t : {r.x, r.y})
    TS_REQUIRE(is_device_number(t), "reads and writes f32, f16, bf16, or e4m3 with one static f32 scale, not ",
               to_string(t));
  for (const QuantType& t : {r.cos, r.sin})
    TS_REQUIRE(is_device_float(t), "reads cos and sin in f32, f16 or bf16, not ", to_string(t));
  for (const Operand& o : p.in) TS_REQUIRE(o.layout == Layout::kRows, "operands must lie in rows");
  TS_REQUIRE(r.then->within(kCodesOnly), kCodesOnly.says_in_order());
  TS_REQUIRE(elements(p.out[0].shape) <= kMaxDeviceElements, "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "FMA", .accumulator_bits = 24};
}

#ifdef __CUDACC__

struct Args {
  DeviceTensor x, cos, sin, y;
  int64_t x_strides[4], cos_strides[3], sin_strides[3];
  FastDivide units, heads, tokens;  // units per head: pairs / N, then what passes through / N
  uint32_t count;                   // of units in all
  int pairs, head_size;
  bool interleaved;
};

// Eight numbers of one head, or one: x may have any stride where it is one.
template <int N>
__device__ __forceinline__ void read(const Args& p, int64_t head, int col, float scale, float (&v)[N]) {
  cuda::load_numbers<N>(p.x.element, p.x.data, head + col * p.x_strides[3], v);
#pragma unroll
  for (int e = 0; e < N; ++e) v[e] *= scale;
}
template <int N>
__device__ __forceinline__ void write(const Args& p, int64_t at, float to_code, float (&v)[N]) {
#pragma unroll
  for (int e = 0; e < N; ++e) v[e] *= to_code;
  cuda::store_numbers<N>(p.y.element, p.y.data, at, v);
}

template <int N>
__global__ void __launch_bounds__(256) rotate(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  const uint32_t row = p.units.quotient(i);
  const int unit = static_cast<int>(i - row * p.units.divisor);
  const uint32_t item = p.heads.quotient(row), h = row - item * p.heads.divisor;
  const uint32_t b = p.tokens.quotient(item), t = item - b * p.tokens.divisor;
  const int64_t head = b * p.x_strides[0] + t * p.x_strides[1] + h * p.x_strides[2], y = int64_t{row} * p.head_size;
  const float scale = cuda::scale_of(p.x), to_code = cuda::inverse_scale_of(p.y);
  const int first = unit * N;
  float v[N], w[N];
  if (first >= p.pairs) {
    const int col = p.pairs + first;
    read<N>(p, head, col, scale, v);
    write<N>(p, y + col, to_code, v);
    return;
  }
  float c[N], s[N];
  cuda::load_numbers<N>(p.cos.element, p.cos.data,
                        b * p.cos_strides[0] + t * p.cos_strides[1] + first * p.cos_strides[2], c);
  cuda::load_numbers<N>(p.sin.element, p.sin.data,
                        b * p.sin_strides[0] + t * p.sin_strides[1] + first * p.sin_strides[2], s);
  // Neighbours: numbers 2 first ... 2 first + 2 N - 1, as v and then w; halves: v and w are N pairs' first and second
  // numbers.
  const int low = p.interleaved ? 2 * first : first, high = p.interleaved ? low + N : first + p.pairs;
  read<N>(p, head, low, scale, v);
  read<N>(p, head, high, scale, w);
  if (N > 1 && p.interleaved) {
#pragma unroll
    for (int e = 0; e + 1 < N; e += 2) {
      const float v1 = v[e], v2 = v[e + 1], w1 = w[e], w2 = w[e + 1];
      const int j = e / 2, k = N / 2 + e / 2;
      v[e] = v1 * c[j] - v2 * s[j];
      v[e + 1] = v2 * c[j] + v1 * s[j];
      w[e] = w1 * c[k] - w2 * s[k];
      w[e + 1] = w2 * c[k] + w1 * s[k];
    }
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float x1 = v[e], x2 = w[e];
      v[e] = x1 * c[e] - x2 * s[e];
      w[e] = x2 * c[e] + x1 * s[e];
    }
  }
  write<N>(p, y + low, to_code, v);
  write<N>(p, y + high, to_code, w);
}

class RotaryKernel final : public Kernel {
 public:
  explicit RotaryKernel(const Problem& p) : r_(RotaryProblem::of(p)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    const int64_t rows = r_.batch * r_.tokens * r_.heads;
    if (rows == 0) return {};
    Args p{.x = device_tensor(in[0]),
           .cos = device_tensor(in[1]),
           .sin = device_tensor(in[2]),
           .y = device_tensor(out[0])};
    bool vector = r_.pairs % 8 == 0 && r_.head_size % 8 == 0;
    const auto set = [&](const Shape& from, int64_t* to) {
      for (size_t a = 0; a < from.size(); ++a) {
        to[a] = from[a];
        vector = vector && (a + 1 == from.size() ? from[a] == 1 : from[a] % 8 == 0);
      }
    };
    set(r_.x_strides, p.x_strides);
    set(r_.cos_strides, p.cos_strides);
    set(r_.sin_strides, p.sin_strides);
    for (const DeviceTensor* t : {&p.x, &p.cos, &p.sin, &p.y}) vector = vector && is_aligned(t->data, 16);
    const int64_t units = (r_.head_size - r_.pairs) / (vector ? 8 : 1);
    p.units = FastDivide(static_cast<uint32_t>(units));
    p.heads = FastDivide(static_cast<uint32_t>(r_.heads));
    p.tokens = FastDivide(static_cast<uint32_t>(r_.tokens));
    p.count = static_cast<uint32_t>(rows * units);
    p.pairs = static_cast<int>(r_.pairs);
    p.head_size = static_cast<int>(r_.head_size);
    p.interleaved = r_.interleaved;
    return cuda::launch_overlapping(kName, vector ? rotate<8> : rotate<1>, divide_up(p.count, 256), 256, 0,
                                    stream.handle, 1, p);
  }

 private:
  const RotaryProblem r_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<RotaryKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& rotary_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
