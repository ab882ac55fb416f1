// SPDX-License-Identifier: Apache-2.0
// Columns of sums whose program has a gate, y[c] = f(sum[c]) * sum[cols + c]: a tile holds eight columns of the gate,
// then the eight that they multiply, and so on. wgmma gives a thread the same two columns of each group of eight, so
// both factors of a result lie in one thread, and w's rows are stored in the order (types/layout.h, halves32) that
// makes eight neighbours of a thread's results in 64 columns of sums. TMA loads w's stored rows in turns:
// to it the weight has axes k, row of eight (stride k), half (stride: half of the stored rows), group (stride 8 k), and
// a box takes both halves of its groups. Host and device, constexpr: tested on the CPU.
#pragma once

#include "types/layout.h"

namespace tessera::sm90 {

constexpr int kGateGroup = 8, kGatePair = 2 * kGateGroup;

struct GatedColumn {
  int half;    // 0: f's argument, 1: what it is multiplied by
  int column;  // of the result
};

TS_HOST_DEVICE constexpr GatedColumn gated_column(int sum_column) {
  const int stored = sum_column / kGatePair * kGateGroup + sum_column % kGateGroup;
  return {sum_column / kGateGroup % 2, turn_pairs32(stored)};
}

}  // namespace tessera::sm90
