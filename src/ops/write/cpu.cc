// SPDX-License-Identifier: Apache-2.0
// New rows batch item by batch item, each a conversion as copy's; before them all of x, unless y lies in its memory.
#include "op/host_numbers.h"
#include "ops/write/write.h"

namespace tessera {
namespace {

// x, new and y; `at` is no number that is converted.
Problem numbers_of(const Problem& p) {
  Problem n = p;
  n.in.resize(2);
  return n;
}

Verdict accepts(const Problem& p) {
  TS_REQUIRE(p.out[0].type == p.in[0].type, "y has the type of x, whose memory it may share; they are ",
             to_string(p.out[0].type), " and ", to_string(p.in[0].type));
  TS_REQUIRE(p.in[0].dense(), "x must be dense");
  TS_REQUIRE(info(p.in[0].type.element).bits >= 8 && info(p.in[1].type.element).bits >= 8,
             "reads and writes numbers of whole bytes, not ", to_string(p.in[0].type), " and ",
             to_string(p.in[1].type));
  return accepts_all_numbers(numbers_of(p));
}

Arithmetic arithmetic(const Problem& p) { return generic_arithmetic(numbers_of(p)); }

class WriteKernel final : public Kernel {
 public:
  explicit WriteKernel(const WriteProblem& w)
      : w_(w),
        items_(w.at_stride > 0 ? w.shape[0] : 1),
        all_(w.shape, dense_strides(w.shape), dense_strides(w.shape)),
        rows_(item_shape(w), w.new_strides, w.new_in_y) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    if (elements(w_.shape) == 0) return {};
    if (in[0].data != out[0].data) all_.run(in[0], out[0]);
    if (elements(w_.new_shape) == 0) return {};
    const auto* at = w_.has_at ? static_cast<const int32_t*>(in[2].data) : nullptr;
    TensorView fresh = in[1];
    for (int64_t b = 0; b < items_; ++b) {
      const int64_t row = w_.first_row(at != nullptr ? at[b * w_.at_stride] : w_.at);
      fresh.data = static_cast<uint8_t*>(in[1].data) + b * w_.new_strides[0] * info(w_.fresh.element).bits / 8;
      rows_.run(fresh, out[0], b * w_.new_in_y[0] + row * w_.row_elements);
    }
    return {};
  }

 private:
  // What one number of `at` is for.
  static Shape item_shape(const WriteProblem& w) {
    Shape shape = w.new_shape;
    if (w.at_stride > 0) shape[0] = 1;
    return shape;
  }

  const WriteProblem w_;
  const int64_t items_;
  const Conversion all_, rows_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<WriteKernel>(WriteProblem::of(p)));
}

}  // namespace

const Variant& write_cpu() {
  static const Variant kVariant{
      .name = "write/cpu", .arch = Arch::cpu, .accepts = accepts, .arithmetic = arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
