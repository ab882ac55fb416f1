// SPDX-License-Identifier: Apache-2.0
// The attention of the CPU variants, for any product of panels: keys in blocks, with a running maximum and sum per
// query (no score matrix in memory). Queries lie along the lanes, 16 to a panel; the query heads that share keys are
// rows of one list. Scores are computed transposed, s[key][query]: so maxima and sums need no shuffles, and in fp32 the
// probabilities are already the packed panel that the second product reads.
//   s = K Q^T     p = exp(scale s + bias - max)     o = o * exp(old max - max) + V^T p      y = (o / sum)^T
// With attr `p` the scores of all keys come first, and then the probabilities, rounded against the maximum of the whole
// row.
#pragma once

#include <memory>

#include "op/problem.h"
#include "op/variant.h"
#include "tiles/cpu/product.h"

namespace tessera {

// What attr `p` rounds probabilities to, as the kernel asks it.
struct WeightType {
  float max = 1;
  int mantissa_bits = 0, min_exponent = 0;
};

// `reads`: the elements of q, k and v that this product takes, `elements`: their names for people.
Verdict accepts_cpu_attention(const Problem& p, bool (*reads)(Element), const char* elements);
// Contract: accepted.
std::unique_ptr<Kernel> make_cpu_attention(const Problem& problem, const PanelProduct& product);

}  // namespace tessera
