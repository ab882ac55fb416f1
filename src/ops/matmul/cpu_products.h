// SPDX-License-Identifier: Apache-2.0
// A matmul as the products of the CPU (ops/cpu_products.h).
#pragma once

#include "ops/cpu_products.h"
#include "ops/matmul/matmul.h"

namespace tessera {

inline CpuProducts products_of_matmul(const Problem& p) {
  const MatmulProblem q = MatmulProblem::of(p);
  return {.batch = q.batch,
          .m = q.m,
          .n = q.n,
          .k = q.k,
          .x_row_stride = q.x_row_stride,
          .w_row_stride = q.w_row_stride,
          .sparse24 = is_sparse24(p)};
}

inline Verdict accepts_cpu_matmul(const Problem& p, const CpuFactors& factors) {
  const Operand* x = p.operand(0);
  TS_REQUIRE(x != nullptr && p.operand(1) != nullptr, "wants x and w");
  TS_REQUIRE(x->layout == Layout::kRows && x->rows().uniform, "reads x in uniform rows");
  return accepts_cpu_products(p, products_of_matmul(p), factors);
}

inline std::vector<OperandLayout> layouts_of_cpu_matmul(const Problem& p, const CpuFactors& factors) {
  return layouts_of_cpu_products(p, products_of_matmul(p), factors);
}

// Contract: accepted.
inline std::unique_ptr<Kernel> make_cpu_matmul(const Problem& p, const CpuFactors& factors) {
  return make_cpu_products(p, products_of_matmul(p), factors);
}

}  // namespace tessera
