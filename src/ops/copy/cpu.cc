// SPDX-License-Identifier: Apache-2.0
// Equal types move codes (a memcpy where x is dense); others go through chunks of f32.
#include "ops/copy/copy.h"
#include "ops/host_numbers.h"

namespace tessera {
namespace {

class CopyKernel final : public Kernel {
 public:
  explicit CopyKernel(const CopyProblem& p) : conversion_(p.shape, p.strides, dense_strides(p.shape)) {}
  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    conversion_.run(in[0], out[0]);
    return {};
  }

 private:
  Conversion conversion_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<CopyKernel>(CopyProblem::of(p)));
}

}  // namespace

const Variant& copy_cpu() {
  static const Variant kVariant{.name = "copy/cpu",
                                .arch = Arch::cpu,
                                .accepts = accepts_all_numbers,
                                .arithmetic = generic_arithmetic,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
