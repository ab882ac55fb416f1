// SPDX-License-Identifier: Apache-2.0
// Finished rows of f32 to codes under scales, in the widest SIMD of this machine, as kernels store them: a whole row,
// or a piece of one that begins at a block. The bits are those of types/quantize_array.h.
//   scale = encode((amax / max) / scale2)    where the type is dynamic: one per row (token) or block
//   code  = encode(x / (scale * scale2))
#pragma once

#include <cstdint>

#include "types/quant_type.h"

namespace tessera {

// Where a row's codes and scales lie: index of its first code, and of the first scale that covers it.
struct RowPlace {
  void* codes = nullptr;
  int64_t first = 0;
  void* scale = nullptr;
  int64_t first_scale = 0;
  const void* scale2 = nullptr;
};

// Scales and codes of n numbers. Contract: check_quantizable(type) is ok; the type is dynamic in rows or blocks, or has
// one static scale for the tensor.
void quantize_row(const QuantType& type, const float* x, int64_t n, const RowPlace& to);

}  // namespace tessera
