// SPDX-License-Identifier: Apache-2.0
// Elementwise functions on the device. Numbers (f32, f16, bf16, e4m3) are computed in fp32, eight per thread where all
// operands have them in a row or repeat one; whatever has integers in it (comparisons, masks) is computed in f64, one
// per thread.
#include <cmath>
#include <optional>

#include "base/buffer.h"
#include "ops/map/map.h"
#include "steps/scalar.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "tiles/cuda/axes.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "map/cuda";

enum class Binary : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMin,
  kMax,
  kMod,
  kEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,
  kOr
};
constexpr const char* kBinaryNames[] = {"add",   "sub",  "mul",        "div",     "pow",           "min", "max", "mod",
                                        "equal", "less", "less_equal", "greater", "greater_equal", "and", "or"};

std::optional<Binary> find_binary(const std::string& name) {
  for (size_t i = 0; i < std::size(kBinaryNames); ++i) {
    if (name == kBinaryNames[i]) return static_cast<Binary>(i);
  }
  return std::nullopt;
}

// Every operand is a number that the fp32 kernels take.
bool all_numbers(const MapProblem& m) {
  bool numbers = is_device_number(m.y);
  for (const QuantType& t : m.in) numbers = numbers && is_device_number(t);
  return numbers;
}

Verdict accepts(const Problem& p) {
  const MapProblem m = MapProblem::of(p).merged();
  TS_REQUIRE(is_device_type(m.y), "writes plain types and e4m3 with one static f32 scale, not ", to_string(m.y));
  for (const QuantType& t : m.in)
    TS_REQUIRE(is_device_type(t), "reads plain types and e4m3 with one static f32 scale, not ", to_string(t));
  for (const Operand& o : p.in) TS_REQUIRE(o.layout == Layout::kRows, "operands must lie in rows");
  TS_REQUIRE(m.shape.size() <= kMaxAxes, "the operands have ", m.shape.size(), " axes that cannot be merged; at most ",
             kMaxAxes, " are walked");
  TS_REQUIRE(elements(m.shape) <= kMaxDeviceElements, "too many elements for 31-bit indices");
  const std::optional<Unary> unary = find_unary(m.fn);
  TS_REQUIRE(m.fn == "where" || unary || find_binary(m.fn), "function ", m.fn, " is unknown");
  if (unary && m.in.size() == 1 && !all_numbers(m)) {
    const bool simple = *unary == Unary::identity || *unary == Unary::neg || *unary == Unary::abs ||
                        *unary == Unary::relu || *unary == Unary::logical_not;
    TS_REQUIRE(simple, m.fn, " is computed in fp32: operands must be f32, f16, bf16 or e4m3, not ", to_string(m.in[0]));
  }
  return {};
}

Arithmetic arithmetic(const Problem& p) {
  const bool numbers = all_numbers(MapProblem::of(p));
  return {.computed = numbers ? Element::f32 : Element::f64,
          .instruction = numbers ? "fp32" : "f64",
          .accumulator_bits = 24};
}

#ifdef __CUDACC__

struct Args {
  DeviceTensor in[3], y;
  DeviceAxes<3> axes;
  uint32_t count;  // of units
  bool repeat[3];  // the operand's number is the same along the last axis
  int arity;
  Unary unary;
  Binary binary;
  bool integer;  // integers divide towards zero, and so on
};

// Calls, so that what is rare takes no room in the kernels.
__device__ __noinline__ float rare_unary(Unary fn, float x) { return apply_unary(fn, x); }
__device__ __noinline__ float rare_binary(Binary fn, float a, float b) {
  return fn == Binary::kPow ? powf(a, b) : fmodf(a, b);
}

__device__ __forceinline__ float apply_one(Unary fn, float x) {
  switch (fn) {
    case Unary::identity:
      return x;
    case Unary::relu:
      return apply_unary<Unary::relu>(x);
    case Unary::gelu_erf:
      return apply_unary<Unary::gelu_erf>(x);
    case Unary::gelu_tanh:
      return apply_unary<Unary::gelu_tanh>(x);
    case Unary::silu:
      return apply_unary<Unary::silu>(x);
    default:
      return rare_unary(fn, x);
  }
}

__device__ __forceinline__ float apply_two(Binary fn, float a, float b) {
  switch (fn) {
    case Binary::kAdd:
      return a + b;
    case Binary::kSub:
      return a - b;
    case Binary::kMul:
      return a * b;
    case Binary::kDiv:
      return a / b;
    case Binary::kMin:
      return a != a || a < b ? a : b;
    case Binary::kMax:
      return a != a || a > b ? a : b;
    case Binary::kPow:
    case Binary::kMod:
      return rare_binary(fn, a, b);
    case Binary::kEqual:
      return a == b ? 1.0f : 0.0f;
    case Binary::kLess:
      return a < b ? 1.0f : 0.0f;
    case Binary::kLessEqual:
      return a <= b ? 1.0f : 0.0f;
    case Binary::kGreater:
      return a > b ? 1.0f : 0.0f;
    case Binary::kGreaterEqual:
      return a >= b ? 1.0f : 0.0f;
    case Binary::kAnd:
      return a != 0.0f && b != 0.0f ? 1.0f : 0.0f;
    case Binary::kOr:
      return a != 0.0f || b != 0.0f ? 1.0f : 0.0f;
  }
  return 0.0f;
}

template <int N>
__global__ void __launch_bounds__(256) map_numbers(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  int64_t at[3];
  cuda::offsets_at(p.axes, i, at);
  float v[3][N];
#pragma unroll
  for (int o = 0; o < 3; ++o) {
    if (o >= p.arity) continue;
    if (p.repeat[o]) {
      const float one = cuda::load_one(p.in[o].element, p.in[o].data, at[o]);
#pragma unroll
      for (int e = 0; e < N; ++e) v[o][e] = one;
    } else {
      cuda::load_numbers<N>(p.in[o].element, p.in[o].data, at[o], v[o]);
    }
    const float scale = cuda::scale_of(p.in[o]);
#pragma unroll
    for (int e = 0; e < N; ++e) v[o][e] *= scale;
  }
  const float to_code = cuda::inverse_scale_of(p.y);
#pragma unroll
  for (int e = 0; e < N; ++e) {
    float y;
    if (p.arity == 1) {
      y = apply_one(p.unary, v[0][e]);
    } else if (p.arity == 2) {
      y = apply_two(p.binary, v[0][e], v[1][e]);
    } else {
      y = v[0][e] != 0.0f ? v[1][e] : v[2][e];
    }
    v[0][e] = y * to_code;
  }
  cuda::store_numbers<N>(p.y.element, p.y.data, int64_t{i} * N, v[0]);
}

__device__ __forceinline__ double apply_any(Unary fn, double x) {
  switch (fn) {
    case Unary::neg:
      return -x;
    case Unary::abs:
      return fabs(x);
    case Unary::relu:
      return x < 0.0 ? 0.0 : x;
    case Unary::logical_not:
      return x == 0.0 ? 1.0 : 0.0;
    default:
      return x;
  }
}

__device__ __noinline__ double apply_any(Binary fn, double a, double b, bool integer) {
  switch (fn) {
    case Binary::kAdd:
      return a + b;
    case Binary::kSub:
      return a - b;
    case Binary::kMul:
      return a * b;
    case Binary::kDiv:
      return !integer ? a / b : b == 0.0 ? 0.0 : trunc(a / b);
    case Binary::kPow:
      return integer ? (b < 0.0 ? trunc(pow(a, b)) : rint(pow(a, b))) : pow(a, b);  // pow errs in its last bits
    case Binary::kMin:
      return a != a || a < b ? a : b;
    case Binary::kMax:
      return a != a || a > b ? a : b;
    case Binary::kMod:
      return !integer ? fmod(a, b) : b == 0.0 ? 0.0 : a - b * floor(a / b);
    case Binary::kEqual:
      return a == b ? 1.0 : 0.0;
    case Binary::kLess:
      return a < b ? 1.0 : 0.0;
    case Binary::kLessEqual:
      return a <= b ? 1.0 : 0.0;
    case Binary::kGreater:
      return a > b ? 1.0 : 0.0;
    case Binary::kGreaterEqual:
      return a >= b ? 1.0 : 0.0;
    case Binary::kAnd:
      return a != 0.0 && b != 0.0 ? 1.0 : 0.0;
    case Binary::kOr:
      return a != 0.0 || b != 0.0 ? 1.0 : 0.0;
  }
  return 0.0;
}

__global__ void __launch_bounds__(256) map_any(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  int64_t at[3];
  cuda::offsets_at(p.axes, i, at);
  double v[3] = {};
#pragma unroll
  for (int o = 0; o < 3; ++o) {
    if (o < p.arity) v[o] = cuda::load_any(p.in[o].element, p.in[o].data, at[o]) * cuda::scale_of(p.in[o]);
  }
  double y;
  if (p.arity == 1) {
    y = apply_any(p.unary, v[0]);
  } else if (p.arity == 2) {
    y = apply_any(p.binary, v[0], v[1], p.integer);
  } else {
    y = v[0] != 0.0 ? v[1] : v[2];
  }
  cuda::store_any(p.y.element, p.y.data, i, y * cuda::inverse_scale_of(p.y));
}

class MapKernel final : public Kernel {
 public:
  explicit MapKernel(const Problem& p) : m_(MapProblem::of(p).merged()) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    const int64_t count = elements(m_.shape);
    if (count == 0) return {};
    Args p{};
    p.arity = static_cast<int>(in.size());
    const bool numbers = all_numbers(m_);
    bool vector = numbers && m_.shape.back() % 8 == 0 && is_aligned(out[0].data, 16);
    for (int o = 0; o < p.arity; ++o) {
      const Shape& strides = m_.strides[static_cast<size_t>(o)];
      p.in[o] = device_tensor(in[static_cast<size_t>(o)]);
      p.repeat[o] = strides.back() == 0;
      if (p.repeat[o]) continue;
      vector = vector && strides.back() == 1 && is_aligned(p.in[o].data, 16);
      for (size_t a = 0; a + 1 < strides.size(); ++a) vector = vector && strides[a] % 8 == 0;
    }
    const int64_t unit = vector ? 8 : 1, units = count / unit;
    p.axes.set(m_.shape, unit);
    for (int o = 0; o < p.arity; ++o) p.axes.set_strides(o, m_.strides[static_cast<size_t>(o)], unit);
    p.y = device_tensor(out[0]);
    p.count = static_cast<uint32_t>(units);
    p.unary = find_unary(m_.fn).value_or(Unary::identity);
    p.binary = find_binary(m_.fn).value_or(Binary::kAdd);
    p.integer = info(m_.in.back().element).kind == ElementKind::kInteger;
    const auto kernel = !numbers ? map_any : vector ? map_numbers<8> : map_numbers<1>;
    return cuda::launch_overlapping(kName, kernel, divide_up(units, 256), 256, 0, stream.handle, 1, p);
  }

 private:
  const MapProblem m_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<MapKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& map_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = {.rules = {{.must = {"LDG"}}},
                                         .local = "sin and cos reduce large arguments through an array on the stack; "
                                                  "rare functions are called, not inlined"},
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
