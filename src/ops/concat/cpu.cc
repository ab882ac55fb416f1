// SPDX-License-Identifier: Apache-2.0
// Each input is a strided copy into its part of y.
#include "ops/concat/concat.h"
#include "ops/host_numbers.h"

namespace tessera {
namespace {

class ConcatKernel final : public Kernel {
 public:
  explicit ConcatKernel(ConcatProblem problem) : p_(std::move(problem)), y_strides_(dense_strides(p_.shape)) {}
  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    for (size_t i = 0; i < p_.pieces.size(); ++i) {
      const ConcatProblem::Piece& piece = p_.pieces[i];
      convert(in[i], out[0], piece.begin * y_strides_[static_cast<size_t>(p_.axis)], piece.shape, piece.strides,
              y_strides_);
    }
    return {};
  }

 private:
  ConcatProblem p_;
  Shape y_strides_;
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
