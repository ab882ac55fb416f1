// SPDX-License-Identifier: Apache-2.0
// Concatenation on the device: a strided copy per piece into its part of y, all of them in one launch where they are
// few and have eight numbers in a row. The first kernel of an image model (patches, and a row of zeros for the class
// token): it reads and writes the caller's buffers through slots.
#include "ops/concat/concat.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"
#include "tiles/strided.h"

#ifdef __CUDACC__
#include "tiles/cuda/copy.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "concat/cuda";

// The axes of one piece, merged where both the piece and its place in y allow it.
struct PieceAxes {
  Shape shape;
  std::vector<Shape> strides;  // of the piece, of y
};

PieceAxes axes_of(const ConcatProblem::Piece& piece) {
  PieceAxes a{.shape = piece.shape, .strides = {piece.strides, piece.y_strides}};
  merge_axes(a.shape, a.strides);
  return a;
}

Verdict accepts(const Problem& p) {
  const ConcatProblem c = ConcatProblem::of(p);
  TS_REQUIRE(is_device_type(c.y), "writes plain types and e4m3 with one static f32 scale, not ", to_string(c.y));
  TS_REQUIRE(elements(c.shape) <= kMaxDeviceElements, "too many elements for 31-bit indices");
  for (const Operand& o : p.in) TS_REQUIRE(o.layout == Layout::kRows, "pieces must lie in rows");
  for (const ConcatProblem::Piece& piece : c.pieces) {
    TS_REQUIRE(is_device_type(piece.type), "reads plain types and e4m3 with one static f32 scale, not ",
               to_string(piece.type));
    const size_t axes = axes_of(piece).shape.size();
    TS_REQUIRE(axes <= kMaxAxes, "a piece has ", axes, " axes that cannot be merged; at most ", kMaxAxes,
               " are walked");
  }
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "conversion", .accumulator_bits = 24};
}

#ifdef __CUDACC__

class ConcatKernel final : public Kernel {
 public:
  explicit ConcatKernel(const Problem& p) : c_(ConcatProblem::of(p)) {
    for (const ConcatProblem::Piece& piece : c_.pieces) axes_.push_back(axes_of(piece));
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    cuda::PiecesArgs all;
    bool at_once = axes_.size() <= cuda::kMostPieces;
    int64_t blocks = 0;
    for (size_t i = 0; at_once && i < axes_.size(); ++i) {
      const PieceAxes& a = axes_[i];
      const cuda::CopyArgs args = args_of(i, in[i], out[0]);
      at_once = c_.pieces[i].y_offset % 8 == 0 && cuda::copies_eight(args, a.shape, a.strides[0], a.strides[1]);
      if (!at_once) break;
      all.piece[i] = args;
      if (elements(a.shape) > 0) cuda::set_axes(all.piece[i], a.shape, a.strides[0], a.strides[1], 8);
      all.first_block[i] = static_cast<uint32_t>(blocks);
      blocks += divide_up(all.piece[i].count, 256);
    }
    if (at_once) {
      for (size_t i = axes_.size(); i < cuda::kMostPieces; ++i) all.first_block[i] = static_cast<uint32_t>(blocks);
      return cuda::launch_overlapping(kName, cuda::copy_pieces, blocks, 256, 0, stream.handle, 1, all);
    }
    for (size_t i = 0; i < axes_.size(); ++i) {
      const QuantType& type = c_.pieces[i].type;
      const PieceAxes& a = axes_[i];
      TS_TRY(cuda::launch_copy(kName, args_of(i, in[i], out[0]), a.shape, a.strides[0], a.strides[1],
                               type == c_.y && !type.scaled(), stream.handle));
    }
    return {};
  }

 private:
  cuda::CopyArgs args_of(size_t i, const TensorView& x, const TensorView& y) const {
    cuda::CopyArgs args{.x = device_tensor(x), .y = device_tensor(y), .x_slot = x.slot, .y_slot = y.slot};
    const int64_t skipped = packed_bytes(c_.y.element, c_.pieces[i].y_offset);
    args.x_slot_offset = x.slot_offset_bytes;
    args.y_slot_offset = y.slot_offset_bytes + skipped;
    if (y.slot == nullptr) args.y.data = static_cast<uint8_t*>(y.data) + skipped;
    return args;
  }

  const ConcatProblem c_;
  std::vector<PieceAxes> axes_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<ConcatKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& concat_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
