// SPDX-License-Identifier: Apache-2.0
// A linear layer that no kernel of the target takes because of its width (K = 200 or ten classes in 8 bits, where rows
// are units of 16 bytes) runs with zeros: columns of zeros in its weight and behind the rows that it reads, rows of
// zeros in its weight and vectors, and a view of its result without the columns that they make. Rows that it reads get
// their zeros where they are rounded, or are already as wide where a padded layer made them. Readers that cannot skip
// columns, and the caller, get a copy.
// Layers that every kernel refuses, fused or not, are touched, with the fewest zeros that help; and one in 16 bits that
// only a library takes, if a copy gathers its rows anyway (patches of 14 x 14 pixels, K = 588) and a kernel of the
// target's own takes it with zeros behind them.
// Error: none, zeros are exact in every type. Codes that a padded layer makes where a copy did before are rounded once,
// not twice.
#pragma once

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// Contract: types are given (precision/quantize.h). `carrier`: of values without scales, as rewrite/unfuse.h asks it.
Status pad_products(Graph& graph, Arch target, Element carrier);

// Whether that makes the layer run, which no kernel of the target takes as it is.
bool runs_padded(const Graph& graph, size_t layer, Arch target, Element carrier);

}  // namespace tessera
