// SPDX-License-Identifier: Apache-2.0
// The matrix product of the references: y[m,n] = sum_k x[m,k] * w[n,k] in f64. Each sum runs over k in order, whatever
// the blocking and the number of threads, so the same operands always give the same bits.
#pragma once

#include <cstdint>

namespace tessera {

// Dense rows: x[m,k], w[n,k], y[m,n]. Runs on all threads unless the caller is inside parallel_for already.
void f64_product(const double* x, const double* w, double* y, int64_t m, int64_t n, int64_t k);

}  // namespace tessera
