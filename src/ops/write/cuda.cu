// SPDX-License-Identifier: Apache-2.0
// New rows into a cache on the device, converted and quantized on the way; where they go is read there too. Eight
// numbers per thread where both sides have them in a row. Before them x is copied, unless y lies in its memory.
#include "op/whole_numbers.h"
#include "ops/write/write.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"
#include "tiles/strided.h"

#ifdef __CUDACC__
#include "tiles/cuda/copy.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "write/cuda";

// Axes of `new`, merged where it and its place in y allow it; the order of the elements stays.
struct NewAxes {
  Shape shape;
  std::vector<Shape> strides;  // of new, in y
};
NewAxes axes_of(const WriteProblem& w) {
  NewAxes a{.shape = w.new_shape, .strides = {w.new_strides, w.new_in_y}};
  merge_axes(a.shape, a.strides);
  return a;
}

Verdict accepts(const Problem& p) {
  const WriteProblem w = WriteProblem::of(p);
  TS_REQUIRE(w.y == w.x, "y has the type of x, whose memory it may share; they are ", to_string(w.y), " and ",
             to_string(w.x));
  for (const QuantType& t : {w.x, w.fresh}) {
    TS_REQUIRE(is_device_type(t) || is_device_int8(t),
               "reads and writes plain types, and e4m3 and int8 with one static f32 scale, not ", to_string(w.fresh),
               " and ", to_string(w.x));
  }
  TS_REQUIRE(p.in[0].layout == Layout::kRows && p.in[0].dense(), "x must be dense");
  TS_REQUIRE(p.in[1].layout == Layout::kRows, "new must lie in rows");
  const size_t axes = axes_of(w).shape.size();
  TS_REQUIRE(axes <= kMaxAxes, "new has ", axes, " axes that cannot be merged; at most ", kMaxAxes, " are walked");
  TS_REQUIRE(elements(w.shape) <= kMaxDeviceElements, "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "conversion", .accumulator_bits = 24};
}

#ifdef __CUDACC__

struct Args {
  cuda::CopyArgs copy;  // x: new, y: where it goes if it begins at row 0
  const int32_t* at;    // null: `row` holds for all
  FastDivide item;      // units of a batch item; all of them where there is one number
  int64_t row_elements;
  int32_t row, most;
};

// Elements of y before those that new's unit i is written to, beside its own offset.
__device__ __forceinline__ int64_t skipped(const Args& p, uint32_t i) {
  const int32_t row = p.at == nullptr ? p.row : p.at[p.item.quotient(i)];
  return min(max(row, 0), p.most) * p.row_elements;
}

__global__ void __launch_bounds__(256) write_eight(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.copy.count) return;
  int64_t at[2];
  cuda::offsets_at(p.copy.axes, i, at);
  const float factor = cuda::scale_of(p.copy.x) * cuda::inverse_scale_of(p.copy.y);
  float v[8];
  cuda::load_eight(p.copy.x.element, p.copy.x.data, at[0], v);
#pragma unroll
  for (int e = 0; e < 8; ++e) v[e] *= factor;
  cuda::store_eight(p.copy.y.element, p.copy.y.data, at[1] + skipped(p, i), v);
}

__global__ void __launch_bounds__(256) write_one(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.copy.count) return;
  int64_t at[2];
  cuda::offsets_at(p.copy.axes, i, at);
  at[1] += skipped(p, i);
  double v = p.copy.x.element == Element::i8 ? cuda::load_i8(p.copy.x.data, at[0])
                                             : cuda::load_any(p.copy.x.element, p.copy.x.data, at[0]);
  v *= cuda::scale_of(p.copy.x);
  if (p.copy.truncate) v = trunc(v);
  v *= cuda::inverse_scale_of(p.copy.y);
  if (p.copy.y.element == Element::i8) {
    cuda::store_i8(p.copy.y.data, at[1], static_cast<float>(v));
  } else {
    cuda::store_any(p.copy.y.element, p.copy.y.data, at[1], v);
  }
}

// Equal types: 64 bits do not survive as a double.
template <class Bits>
__global__ void __launch_bounds__(256) write_bits(const __grid_constant__ Args p) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.copy.count) return;
  int64_t at[2];
  cuda::offsets_at(p.copy.axes, i, at);
  static_cast<Bits*>(p.copy.y.data)[at[1] + skipped(p, i)] = static_cast<const Bits*>(p.copy.x.data)[at[0]];
}

class WriteKernel final : public Kernel {
 public:
  explicit WriteKernel(const Problem& p) : w_(WriteProblem::of(p)), axes_(axes_of(w_)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (elements(w_.shape) == 0) return {};
    if (in[0].data != out[0].data) {
      const Shape all{elements(w_.shape)}, step{1};
      TS_TRY(cuda::launch_copy(kName, {.x = device_tensor(in[0]), .y = device_tensor(out[0])}, all, step, step,
                               !w_.x.scaled(), stream.handle));
    }
    if (elements(w_.new_shape) == 0) return {};
    Args p{.copy = {.x = device_tensor(in[1]), .y = device_tensor(out[0])}};
    const bool eight = w_.row_elements % 8 == 0 &&
                       cuda::copies_eight(p.copy, axes_.shape, axes_.strides[0], axes_.strides[1]) &&
                       is_aligned(p.copy.x.data, 16) && is_aligned(p.copy.y.data, 16);
    cuda::set_axes(p.copy, axes_.shape, axes_.strides[0], axes_.strides[1], eight ? 8 : 1);
    p.copy.truncate = is_whole(w_.y) && !is_whole(w_.fresh);
    p.at = w_.has_at ? static_cast<const int32_t*>(in[2].data) : nullptr;
    p.item = FastDivide(p.copy.count / static_cast<uint32_t>(w_.at_stride > 0 ? w_.shape[0] : 1));
    p.row_elements = w_.row_elements;
    p.row = static_cast<int32_t>(w_.at), p.most = static_cast<int32_t>(w_.most);
    const auto start = [&](auto kernel) {
      return cuda::launch_overlapping(kName, kernel, divide_up(p.copy.count, 256), 256, 0, stream.handle, 1, p);
    };
    if (eight) return start(write_eight);
    if (w_.fresh != w_.y || w_.y.scaled()) return start(write_one);
    switch (info(w_.y.element).bits) {
      case 8:
        return start(write_bits<uint8_t>);
      case 16:
        return start(write_bits<uint16_t>);
      case 32:
        return start(write_bits<uint32_t>);
      default:
        return start(write_bits<uint64_t>);
    }
  }

 private:
  const WriteProblem w_;
  const NewAxes axes_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<WriteKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& write_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
