// SPDX-License-Identifier: Apache-2.0
// Each input is a strided copy into its part of y.
#include "op/host_numbers.h"
#include "ops/concat/concat.h"

namespace tessera {
namespace {

class ConcatKernel final : public Kernel {
 public:
  explicit ConcatKernel(const ConcatProblem& p) {
    for (const ConcatProblem::Piece& piece : p.pieces) {
      pieces_.emplace_back(piece.shape, piece.strides, piece.y_strides);
      begins_.push_back(piece.y_offset);
    }
  }
  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    for (size_t i = 0; i < pieces_.size(); ++i) pieces_[i].run(in[i], out[0], begins_[i]);
    return {};
  }

 private:
  std::vector<Conversion> pieces_;
  std::vector<int64_t> begins_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<ConcatKernel>(ConcatProblem::of(p)));
}

}  // namespace

const Variant& concat_cpu() {
  static const Variant kVariant{.name = "concat/cpu",
                                .arch = Arch::cpu,
                                .accepts = accepts_all_numbers,
                                .arithmetic = generic_arithmetic,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
