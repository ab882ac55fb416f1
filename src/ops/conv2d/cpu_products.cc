// SPDX-License-Identifier: Apache-2.0
#include "ops/conv2d/cpu_products.h"

#include "op/cpu_program.h"
#include "ops/conv2d/windows.h"

namespace tessera {
namespace {

CpuProducts products_of(const Problem& p) {
  const Conv2dProblem q = Conv2dProblem::of(p);
  return {.batch = q.groups,
          .m = q.pixels(),
          .n = q.n,
          .k = q.k,
          .w_row_stride = p.in[1].layout == Layout::kRows ? p.in[1].rows().row_stride : q.k,
          .beside = true,
          .sparse24 = q.sparse24};
}

class WindowRows final : public CpuRows {
 public:
  explicit WindowRows(const Problem& p) : windows_(Conv2dProblem::of(p)), bits_(info(p.in[0].type.element).bits) {}

  void read(const TensorView& x, int64_t batch, int64_t row, int64_t rows, int64_t col, int64_t cols,
            void* codes) const override {
    if (bits_ == 32) return read_as<uint32_t>(x, batch, row, rows, col, cols, codes);
    if (bits_ == 16) return read_as<uint16_t>(x, batch, row, rows, col, cols, codes);
    read_as<uint8_t>(x, batch, row, rows, col, cols, codes);
  }

 private:
  template <class T>
  void read_as(const TensorView& x, int64_t batch, int64_t row, int64_t rows, int64_t col, int64_t cols,
               void* codes) const {
    for (int64_t r = 0; r < rows; ++r)
      windows_.read(static_cast<const T*>(x.data), batch, row + r, col, cols, static_cast<T*>(codes) + r * cols);
  }

  const Windows windows_;
  const int bits_;
};

}  // namespace

Verdict accepts_cpu_conv2d(const Problem& p, const CpuFactors& f) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  TS_REQUIRE(x != nullptr && w != nullptr, "wants x and w");
  const int bits = info(x->type.element).bits;
  TS_REQUIRE(x->layout == Layout::kRows && x->strides[3] == 1, "reads x with its channels last");
  TS_REQUIRE((bits == 8 || bits == 16 || bits == 32) && has_one_scale(x->type),
             "reads windows of x in 8, 16 or 32 bits with at most one static f32 scale, not ", to_string(x->type));
  const CpuProducts products = products_of(p);
  TS_REQUIRE(products.batch == 1 || products.n % CpuProgram::kPieceCols == 0 || has_one_scale(p.out[0].type),
             "writes groups of ", products.n, " columns, inside blocks of ", to_string(p.out[0].type));
  return accepts_cpu_products(p, products, f);
}

std::vector<OperandLayout> layouts_of_cpu_conv2d(const Problem& p, const CpuFactors& f) {
  return layouts_of_cpu_products(p, products_of(p), f);
}

std::unique_ptr<Kernel> make_cpu_conv2d(const Problem& p, const CpuFactors& f) {
  return make_cpu_products(p, products_of(p), f, std::make_unique<WindowRows>(p));
}

}  // namespace tessera
