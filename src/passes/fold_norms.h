// SPDX-License-Identifier: Apache-2.0
// Norms between linear layers that become a factor per row: gain and centring go into the weights of the layers behind, before those are rounded, the shift into their biases,
// and the layer before writes the moments of its rows (ops/row_moments.h has the algebra). For few rows, where a norm is a kernel that is hardly longer than its launch.
// Changes no number but by the order of sums in f32; in 8 bits the residual stream itself is rounded in place of the normalised one.
#pragma once

#include <set>
#include <string>

#include "base/status.h"
#include "ir/graph.h"
#include "passes/choose_precisions.h"

namespace tessera {

// The norms that may be folded: a linear layer before them (whose 16-bit result somebody reads), linear layers with plain weights behind and nobody else, and kernels of the target that do
// both ends at these sizes and are not slow there. None before INT8, whose even steps the residual stream does not suit. Contract: the graph is canonical; options name a target.
Result<std::set<std::string>> foldable_norms(Graph graph, const QuantizeOptions& options);
// Folds those of options.folded_norms. Contract: as foldable_norms found them, in this graph or one of another batch; types are not given yet.
Status fold_norms(Graph& graph, const std::set<std::string>& norms);

}  // namespace tessera
