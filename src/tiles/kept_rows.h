// SPDX-License-Identifier: Apache-2.0
// Where a matmul's columns lie in a tensor that outlives the run (op/extra_results.h): [batch, outer, rows, run], whose
// outer x run columns are those of one row of y. A KV cache [b, rows, heads, size] has outer = 1 and run = heads x
// size, one of [b, heads, rows, size] has outer = heads. Host and device, constexpr: tested on the CPU.
#pragma once

#include <cstdint>

#include "types/small_float.h"

namespace tessera {

struct KeptRows {
  int batch = 1, outer = 1, rows = 0, run = 1;
  int tokens = 0;  // rows of y in each batch item

  // The row of the first token, where `number` says it: all of them fit, whatever it is.
  TS_HOST_DEVICE constexpr int first_row(int number) const {
    const int last = rows - tokens;
    return number < 0 ? 0 : number < last ? number : last;
  }
  TS_HOST_DEVICE constexpr int64_t index(int item, int row, int column) const {
    return ((int64_t{item} * outer + column / run) * rows + row) * run + column % run;
  }
};

}  // namespace tessera
