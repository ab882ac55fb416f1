// SPDX-License-Identifier: Apache-2.0
// Receipts of what ran on a GPU. Where the environment names a file (TESSERA_RECEIPTS), each test process merges its
// results into it at its end:
//   { "matmul/cuda_cublaslt": { "hash": "...", "compiler": "nvcc ...", "tests": 42, "worst_error": 0.31,
//                               "suites": { "Matmul.Agrees...": { "tests": 42, "worst_error": 0.31 } } } }
// worst_error is a share of the tolerance. A hash or compiler other than the present one starts the variant's entry
// anew; a failure removes it.
#pragma once

#include "op/variant.h"

namespace tessera {

// A problem compared inside the current test; `worst_error` above 1 is a failure.
void record_receipt(const Variant& variant, double worst_error);

}  // namespace tessera
