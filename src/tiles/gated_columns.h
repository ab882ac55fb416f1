// SPDX-License-Identifier: Apache-2.0
// Columns of sums whose program has a gate, y[c] = f(sum[c]) * sum[cols + c]: a tile holds eight columns of the gate, then the eight that they multiply, and so on. wgmma gives a
// thread the same two columns of each group of eight, so both factors of a result lie in one thread. The copy engine brings w's rows in this order: to it the weight has axes
// k, row of eight (stride k), half (stride cols * k), group (stride 8 k), and a box takes both halves of its groups.
// Host and device, constexpr: tested on the CPU.
#pragma once

#include "types/small_float.h"

namespace tessera::sm90 {

constexpr int kGateGroup = 8, kGatePair = 2 * kGateGroup;

struct GatedColumn {
  int half;    // 0: f's argument, 1: what it is multiplied by
  int column;  // of the result
};

TS_HOST_DEVICE constexpr GatedColumn gated_column(int sum_column) {
  return {sum_column / kGateGroup % 2, sum_column / kGatePair * kGateGroup + sum_column % kGateGroup};
}

// The row of w (and the bias and scale) that a column of sums belongs to; `rows`: of w, both halves.
TS_HOST_DEVICE constexpr int gated_row(int sum_column, int rows) {
  const GatedColumn c = gated_column(sum_column);
  return c.half * (rows / 2) + c.column;
}

}  // namespace tessera::sm90
