// SPDX-License-Identifier: Apache-2.0
// Copies of views on the device, converting and quantizing on the way; the first and last kernels of a plan, which find
// the caller's buffers in slots.
#include <algorithm>

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

// Axes beyond those that the kernel walks: the shortest ones, of which each element is a launch (patches of films).
struct Launches {
  Shape shape, x_strides, y_strides;                            // of one launch
  std::vector<std::pair<int64_t, int64_t>> offsets = {{0, 0}};  // of x and of y, in elements
};
constexpr int64_t kMostLaunches = 64;

int64_t launches_of(Shape shape) {
  std::sort(shape.begin(), shape.end() - 1);
  int64_t count = 1;
  for (size_t a = 0; a + kMaxAxes < shape.size(); ++a) count *= shape[a];
  return count;
}

Launches split(const CopyProblem& c) {
  Launches l{.shape = c.shape, .x_strides = c.strides, .y_strides = dense_strides(c.shape)};
  while (l.shape.size() > kMaxAxes) {
    const auto axis = std::min_element(l.shape.begin(), l.shape.end() - 1) - l.shape.begin();
    const int64_t size = l.shape[static_cast<size_t>(axis)], x = l.x_strides[static_cast<size_t>(axis)],
                  y = l.y_strides[static_cast<size_t>(axis)];
    std::vector<std::pair<int64_t, int64_t>> all;
    for (const auto& [at_x, at_y] : l.offsets) {
      for (int64_t i = 0; i < size; ++i) all.emplace_back(at_x + i * x, at_y + i * y);
    }
    l.offsets = std::move(all);
    for (Shape* s : {&l.shape, &l.x_strides, &l.y_strides}) s->erase(s->begin() + axis);
  }
  return l;
}

Verdict accepts(const Problem& p) {
  const CopyProblem c = CopyProblem::of(p).merged();
  for (const QuantType& t : {c.x, c.y}) {
    TS_REQUIRE(is_device_type(t) || is_device_int8(t),
               "reads and writes plain types, and e4m3 and int8 with one static f32 scale, not ", to_string(c.x),
               " and ", to_string(c.y));
  }
  TS_REQUIRE(p.in[0].layout == Layout::kRows, "x must lie in rows");
  TS_REQUIRE(c.shape.size() <= kMaxAxes || launches_of(c.shape) <= kMostLaunches, "x has ", c.shape.size(),
             " axes that cannot be merged; at most ", kMaxAxes, " are walked, and ", kMostLaunches,
             " elements of the others");
  TS_REQUIRE(elements(c.shape) <= kMaxDeviceElements, "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "conversion", .accumulator_bits = 24};
}

#ifdef __CUDACC__

class CopyKernel final : public Kernel {
 public:
  explicit CopyKernel(const Problem& p) : c_(CopyProblem::of(p).merged()), l_(split(c_)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    for (const auto& [at_x, at_y] : l_.offsets) {
      cuda::CopyArgs args{
          .x = device_tensor(in[0]), .y = device_tensor(out[0]), .x_slot = in[0].slot, .y_slot = out[0].slot};
      const int64_t x_bytes = at_x * info(args.x.element).bits / 8, y_bytes = at_y * info(args.y.element).bits / 8;
      args.x_slot_offset = in[0].slot_offset_bytes + x_bytes;
      args.y_slot_offset = out[0].slot_offset_bytes + y_bytes;
      args.x.data = moved(args.x.data, x_bytes);
      args.y.data = moved(args.y.data, y_bytes);
      TS_TRY(cuda::launch_copy(kName, args, l_.shape, l_.x_strides, l_.y_strides, c_.x == c_.y && !c_.x.scaled(),
                               stream.handle));
    }
    return {};
  }

 private:
  static void* moved(void* data, int64_t bytes) {
    return data == nullptr ? nullptr : static_cast<uint8_t*>(data) + bytes;
  }
  const CopyProblem c_;
  const Launches l_;
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
