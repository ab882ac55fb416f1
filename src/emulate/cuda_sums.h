// SPDX-License-Identifier: Apache-2.0
// emulate_sums (emulate/tensor_core.h) on the CUDA cores of a GPU, in integers: the same bits, fast enough for whole
// layers of a batch and for cubes of 8192.
#pragma once

#include "emulate/tensor_core.h"

namespace tessera {

// False where there is no GPU, or it cannot: slices and promotion that do not fall on multiples of 32.
// Contract: host memory in and out; all numbers are finite and have at most 11 significant bits (f16, bf16, e4m3).
bool emulate_sums_on_device(const SumOrder& order, const CoreOperand& x, const CoreOperand& w, float* sums, int64_t m,
                            int64_t n, int64_t k);

}  // namespace tessera
