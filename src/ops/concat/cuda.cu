// SPDX-License-Identifier: Apache-2.0
// Concatenation on the device: one strided copy per piece into its part of y.
// SASS must: LDG
#include "ops/concat/concat.h"
#include "tiles/device_axes.h"
#include "tiles/device_types.h"
#include "tiles/strided.h"

#ifdef __CUDACC__
#include "tiles/cuda_copy.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "concat/cuda";

// The axes of one piece, merged where both the piece and its place in y allow it.
struct PieceAxes {
  Shape shape;
  std::vector<Shape> strides;  // of the piece, of y
  int64_t y_offset = 0;
};

PieceAxes axes_of(const ConcatProblem& c, const ConcatProblem::Piece& piece) {
  const Shape y = dense_strides(c.shape);
  PieceAxes a{.shape = piece.shape, .strides = {piece.strides, y}, .y_offset = piece.begin * y[static_cast<size_t>(c.axis)]};
  merge_axes(a.shape, a.strides);
  return a;
}

Verdict accepts(const Problem& p) {
  const ConcatProblem c = ConcatProblem::of(p);
  TS_REQUIRE(is_device_type(c.y), "writes plain types and e4m3 with one static f32 scale, not ", to_string(c.y));
  TS_REQUIRE(elements(c.shape) <= kMaxDeviceElements, "too many elements for 31-bit indices");
  for (const Operand& o : p.in) TS_REQUIRE(o.layout == Layout::kRows, "pieces must lie in rows");
  for (const ConcatProblem::Piece& piece : c.pieces) {
    TS_REQUIRE(is_device_type(piece.type), "reads plain types and e4m3 with one static f32 scale, not ", to_string(piece.type));
    const size_t axes = axes_of(c, piece).shape.size();
    TS_REQUIRE(axes <= kMaxAxes, "a piece has ", axes, " axes that cannot be merged; at most ", kMaxAxes, " are walked");
  }
  return {};
}

Arithmetic arithmetic(const Problem&) { return {.computed = "fp32", .instruction = "conversion", .accumulator_bits = 24, .sass_must = "LDG"}; }

#ifdef __CUDACC__

class ConcatKernel final : public Kernel {
 public:
  explicit ConcatKernel(const Problem& p) : c_(ConcatProblem::of(p)) {
    for (const ConcatProblem::Piece& piece : c_.pieces) axes_.push_back(axes_of(c_, piece));
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    for (size_t i = 0; i < axes_.size(); ++i) {
      const QuantType& type = c_.pieces[i].type;
      cuda::CopyArgs args{.x = device_tensor(in[i]), .y = device_tensor(out[0])};
      args.y.data = static_cast<uint8_t*>(out[0].data) + packed_bytes(c_.y.element, axes_[i].y_offset);
      TS_TRY(cuda::launch_copy(kName, args, axes_[i].shape, axes_[i].strides[0], axes_[i].strides[1], type == c_.y && !type.scaled(), stream.handle));
    }
    return {};
  }

 private:
  const ConcatProblem c_;
  std::vector<PieceAxes> axes_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) { return std::unique_ptr<Kernel>(std::make_unique<ConcatKernel>(p)); }

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& concat_cuda() {
  static const Variant kVariant{.name = kName, .arch = Arch::cuda, .accepts = accepts, .arithmetic = arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
