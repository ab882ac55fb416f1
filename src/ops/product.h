// SPDX-License-Identifier: Apache-2.0
// What the products of matmul and conv2d have in common, as kernels of both ask it: m rows of x (tokens; windows of an
// image) times n rows of w over k, then the program.
#pragma once

#include <cstdint>

#include "ir/program.h"
#include "types/quant_type.h"

namespace tessera {

struct Product {
  int64_t m = 0, n = 0, k = 0;
  int64_t cols = 0;  // of y: n, or n / 2 where the program has a gate
  QuantType x, w, y;
  bool constant_w = false;
  const Program* then = nullptr;
};

}  // namespace tessera
