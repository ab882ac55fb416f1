// SPDX-License-Identifier: Apache-2.0
// How far from zero the rows lie that LayerNorms read: |mean| / deviation of a row, root of its mean square over all
// rows of the samples. A norm that is folded away (lower/fold_norms.h) subtracts the mean in the weights behind it,
// after x was rounded with the mean in it: rounding errors grow by sqrt(1 + offset^2).
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "inputs/samples.h"
#include "ir/graph.h"

namespace tessera {

// By the norm's name; RMSNorms, which subtract nothing, have none. The model runs in f32 on the CPU. Contract: the
// graph is canonical.
Result<std::map<std::string, double>> measure_row_offsets(const Graph& graph, const Samples& samples);

}  // namespace tessera
