// SPDX-License-Identifier: Apache-2.0
// CopyCount the difficulty of rounding between a layer's input and its weight: columns of the weight are multiplied by
// s, what makes the input divides by it. In real arithmetic nothing changes: w s (x / s) = w x.
//   smooth   s_j = amax|x_j|^a / amax|w_j|^(1-a)     inputs with few large channels become easy to round (SmoothQuant)
//   awq      s_j = mean|x_j|^a or mean|x_j|^a / mean|w_j|^(1-a), a from a grid: the one with the least tr(E H E^T) of
//            the rounded weight (AWQ)
// Where the division goes: into gain and shift of a norm, into rows (and bias) of a linear layer, through attention
// into the rows that make v, else into a `scale` step after an activation. Every reader of the value must be one of the
// layers; where that or a place is missing, nothing is done and the reason is said.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/moments.h"
#include "types/quant_type.h"
#include "weights/hessian.h"

namespace tessera {

struct Migrated {
  bool done = false;
  std::string how;    // "into the gain of blocks.0.norm1", or the reason why not
  std::string maker;  // the node that divides
};
// `layers`: indices of linear layers that read x. factors: [k], positive. Contract: the graph is in f32.
Migrated migrate(Graph& graph, ValueId x, std::span<const size_t> layers, const std::vector<float>& factors);

// A weight as rows of k numbers, and the type that it will be rounded to.
struct MigratedWeight {
  std::vector<float> w;
  QuantType type;
};
std::vector<float> smooth_factors(const InputMoments& moments, std::span<const MigratedWeight> weights,
                                  double exponent);
struct AwqFactors {
  std::vector<float> factors;
  bool by_weight = false;        // divided by the weight's means
  double exponent = 0;           // 0: no factors are better than any
  double before = 0, after = 0;  // |E X| / |W X| over the rows looked at
};
Result<AwqFactors> awq_factors(const InputMoments& moments, const Hessian& hessian,
                               std::span<const MigratedWeight> weights);

// What the moments become where the input is divided by the factors.
void divide_moments(InputMoments& moments, const std::vector<float>& factors);

}  // namespace tessera
