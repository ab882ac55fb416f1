// SPDX-License-Identifier: Apache-2.0
// Error-compensated pruning and rounding of one weight w[n, k]: numbers are fixed column by column, and what fixing one
// costs is made good by the columns that are still free (optimal brain surgeon, blocked). Then sweeps set each number
// to its best under all others. Both lower tr((q - w) H (q - w)^T), the squared change of the layer's results.
//   fix column i:     e = (w_i - q_i) / U_ii,   w_j -= e * U_ij for j > i                          (H^-1 = U^T U)
//   prune a group:    of all sets S that its pattern allows, the one with the least w_S^T (H^-1_SS)^-1 w_S; taking it
//                     out changes the free columns by -H^-1_:S (H^-1_SS)^-1 w_S
//   sweep column i:   q_i = the nearest number of the grid to q_i - ((q - w) H)_i / H_ii
// Rows are independent of each other, so threads do not change the bits.
#pragma once

#include <cstdint>
#include <vector>

#include "weights/hessian.h"
#include "weights/weight_grid.h"

namespace tessera {

// k24: of each four at most two are not zero. k48Pairs: of each four in two adjacent pairs one pair is kept, which is
// 2:4 and, of each eight, 4:8 in pairs.
enum class SparsityPattern : uint8_t { kDense, k24, k48Pairs };

struct CompensateJob {
  const float* w = nullptr;  // [rows, k], what is aimed at
  int64_t rows = 0;
  SparsityPattern pattern = SparsityPattern::kDense;  // chooses what to prune
  const std::vector<uint8_t>* kept = nullptr;         // or: prune where this is 0; the pattern is kDense then
  const float* start = nullptr;                       // with `kept`: where to begin; null: at w
  const WeightGrid* grid = nullptr;                   // null: what is kept may be any number
  int sweeps = 3;
};
struct Compensated {
  std::vector<float> w;        // [rows, k]
  std::vector<float> decoded;  // with a grid: what the codes of w decode to
  std::vector<uint8_t> kept;   // with a pattern or `kept`
};
// Contract: the Hessian is factored. Of columns at the end that do not fill a group of four two are kept, too.
Compensated compensate(const Hessian& hessian, const CompensateJob& job);

}  // namespace tessera
