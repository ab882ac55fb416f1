// SPDX-License-Identifier: Apache-2.0
// The program of a matmul whose product a library computes. The library adds a bias vector and a residual matrix to its
// f32 sum before it rounds, where all rows are units of 16 bytes; every other program runs in a second kernel over the
// product (tiles/cuda/steps.cuh), which then does all the steps: a bias given to the library would be rounded twice.
// Other rows it multiplies with older kernels, and adds the bias in a kernel of its own to the 16 bits that they wrote
// (cublasLt::epilogue::impl::globalKernel): one rounding more than anybody asked for. Their product is f32 therefore.
#pragma once

#include "archs/planted_fault.h"
#include "ops/device_program.h"
#include "ops/matmul/emulate.h"
#include "ops/matmul/matmul.h"
#include "tiles/cuda/cublaslt.h"

namespace tessera {

// What the library adds itself.
inline constexpr StepSet kLibrarySteps = {StepKind::bias, StepKind::residual};

inline std::vector<std::string> cublas_configs(const Problem&) {
  return {std::begin(kCublasConfigs), std::end(kCublasConfigs)};
}

struct AfterProduct {
  bool second_kernel = false;
  const Step *bias = nullptr, *residual = nullptr;  // done by the library
  Element product = Element::f32;                   // what the library writes
  bool in_place = true;  // it writes y itself; else the second kernel reads it from the workspace
};

// What every program needs of its operands, and y of its type.
inline Verdict accepts_program(const Problem& p, const MatmulProblem& q) {
  TS_REQUIRE(is_device_number(q.y), "writes f32, f16, bf16, or e4m3 with one static f32 scale, not ", to_string(q.y));
  return accepts_device_program(p, q.batch * q.m * q.n);
}

// The rows of a residual that repeats over those of one product (positions of tokens, over the images of a batch); 0
// where it does not, or where so few of them would make products too small to be worth it.
inline int64_t repeated_rows(const Problem& p, const MatmulProblem& q, const Step& residual) {
  const RowView r = p.step_operand(residual).rows();
  return q.batch == 1 && r.uniform && r.rows >= 16 && r.rows < q.m && q.m % r.rows == 0 && r.row_stride >= q.n ? r.rows
                                                                                                               : 0;
}

// Whether the library adds to its f32 sum what it is given beside a product in 16 bits.
inline bool adds_before_rounding(const MatmulProblem& q, int64_t c_row_stride) {
  const auto whole = [](int64_t stride, const QuantType& t) { return stride * info(t.element).bits % 128 == 0; };
  return planted(Fault::kOddRows) || info(q.y.element).bits > 16 ||
         (whole(q.x_row_stride, q.x) && whole(q.w_row_stride, q.w) && whole(q.n, q.y) && whole(c_row_stride, q.y));
}

// `bias_fits`: whether the library takes a bias of the result's element. `narrow`: the product's element where it is
// not the result itself. `repeats`: whether it is asked for a product per repetition where the residual's rows repeat.
inline AfterProduct after_product(const Problem& p, const MatmulProblem& q, bool bias_fits, Element narrow,
                                  bool repeats = false) {
  AfterProduct a;
  a.product = q.y.element;
  const bool fits_itself = q.y.element == narrow || q.y.element == Element::f32;
  bool rounds_late = true;
  if (q.then->within(kLibrarySteps)) {
    a.bias = q.then->find(StepKind::bias);
    a.residual = q.then->find(StepKind::residual);
    bool fits = fits_itself;
    if (a.bias != nullptr) fits = fits && bias_fits && q.n % 8 == 0 && p.step_operand(*a.bias).type == q.y;
    if (a.residual != nullptr) {
      const Operand& r = p.step_operand(*a.residual);
      // Rows that overlap (an expanded axis) are no matrix to the library.
      const bool once = elements(r.shape) == q.batch * q.m * q.n && r.rows().row_stride >= q.n;
      fits = fits && r.type == q.y && (once || (repeats && repeated_rows(p, q, *a.residual) > 0));
    }
    const int64_t c_row_stride = a.residual == nullptr ? q.n : p.step_operand(*a.residual).rows().row_stride;
    rounds_late = q.then->empty() || adds_before_rounding(q, c_row_stride);
    if (fits && rounds_late) return a;
  }
  a.second_kernel = true;
  a.bias = a.residual = nullptr;
  a.in_place = fits_itself && rounds_late;
  if (!a.in_place)
    a.product = Element::f32;  // 16 bits would round once more, and f16 overflow where a scaled e4m3 does not
  return a;
}

// Half the relative rounding of a product on its way to the second kernel: Arithmetic counts an operand's error twice.
inline double product_error(const AfterProduct& a) {
  if (!a.second_kernel || a.product == Element::f32) return 0;
  return a.product == Element::f16 ? 0x1p-12 : 0x1p-9;
}

// That rounding as emulation has it. `or_f32`: of a variant that may fall back to f32.
inline LibraryProduct library_product(const AfterProduct& a, bool or_f32) {
  return {a.second_kernel ? a.product : Element::f32, or_f32};
}

inline double second_kernel_error(const MatmulProblem& q, const AfterProduct& a) {
  return a.second_kernel ? device_program_error(*q.then, q.y) : 0;
}

// Contract: accepts_program said yes.
inline DeviceSteps device_steps(const Problem& p, const MatmulProblem& q, std::span<const TensorView> in,
                                const TensorView& y, DeviceTensor product) {
  return device_steps(p, q.batch * q.m, q.n, in, y, product);
}

}  // namespace tessera
