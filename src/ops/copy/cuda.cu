// SPDX-License-Identifier: Apache-2.0
// Copies of views on the device, converting and quantizing on the way; the first and last kernels of a plan, which find
// the caller's buffers in slots.
#include "ops/copy/copy.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"
#include "tiles/strided.h"

#ifdef __CUDACC__
#include "tiles/cuda/copy.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "copy/cuda";

Verdict accepts(const Problem& p) {
  const CopyProblem c = CopyProblem::of(p).merged();
  for (const QuantType& t : {c.x, c.y}) {
    TS_REQUIRE(is_device_type(t) || is_device_int8(t),
               "reads and writes plain types, and e4m3 and int8 with one static f32 scale, not ", to_string(c.x),
               " and ", to_string(c.y));
  }
  TS_REQUIRE(p.in[0].layout == Layout::kRows, "x must lie in rows");
  TS_REQUIRE(c.shape.size() <= kMaxAxes, "x has ", c.shape.size(), " axes that cannot be merged; at most ", kMaxAxes,
             " are walked");
  TS_REQUIRE(elements(c.shape) <= kMaxDeviceElements, "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "conversion", .accumulator_bits = 24};
}

#ifdef __CUDACC__

class CopyKernel final : public Kernel {
 public:
  explicit CopyKernel(const Problem& p) : c_(CopyProblem::of(p).merged()), y_strides_(dense_strides(c_.shape)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    cuda::CopyArgs args{
        .x = device_tensor(in[0]), .y = device_tensor(out[0]), .x_slot = in[0].slot, .y_slot = out[0].slot};
    args.x_slot_offset = in[0].slot_offset_bytes;
    args.y_slot_offset = out[0].slot_offset_bytes;
    return cuda::launch_copy(kName, args, c_.shape, c_.strides, y_strides_, c_.x == c_.y && !c_.x.scaled(),
                             stream.handle);
  }

 private:
  const CopyProblem c_;
  const Shape y_strides_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<CopyKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& copy_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
