// SPDX-License-Identifier: Apache-2.0
// The edit of a graph that folds one norm (lower/fold_norms.h has the why, steps/row_moments.h the algebra).
//   gain and shift constant     w' = w diag(gain), centred; b' = b + w shift
//   rows of tables (adaRMS)     the layer before writes x o gain beside x; b' is a row of a table, b + w shift for each
//                               row of the shift's table, in f64 of the weight as it is before any rounding
#pragma once

#include <cstdint>

#include "lower/find_folds.h"

namespace tessera {

// What is asked of kernels needs no numbers.
enum class Numbers : uint8_t { kMade, kLeftOut };

void fold(Graph& graph, const Fold& f, Numbers numbers);
// The norm stays a kernel. One with constants only divides by the deviation, over the weights of a plan that folds it;
// of one with tables the weights are the model's either way.
void make_plain(Graph& graph, const Fold& f);

}  // namespace tessera
