// SPDX-License-Identifier: Apache-2.0
// Folds a norm between linear layers into a factor per row: gain and centring go into the weights of the next layers
// before these are rounded, the shift into their biases, and the layer before writes the moments of its rows
// (steps/row_moments.h has the algebra). For few rows, where a norm kernel is bound by its launch.
// Error: mathematically exact; only the places where numbers are rounded change. Weights are rounded with gain and
// centring in them, and what is multiplied is rounded with its mean in it, so both errors grow by sqrt(1 + (mean /
// deviation)^2) of x's rows: norms whose rows lie far from zero stay.
// Gain and shift that change with time (adaRMS) fit into no weight: the layer before writes x times the gain beside x,
// and the shift becomes a bias per step (lower/fold_one.h).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "precision/choose_precisions.h"

namespace tessera {

// |mean| / deviation of the rows that a LayerNorm reads, by its name (calibrate/row_offsets.h); one that is not there:
// 0.
using RowOffsets = std::map<std::string, double>;

// The norms that may be folded: a linear layer before them (whose 16-bit result has a reader), linear layers with
// plain weights after it and no other reader, rows that are few and near zero, and kernels of the target that do both
// ends at these sizes and are not slow there. None before INT8 layers, whose uniform steps suit the residual stream
// badly, and none whose result has a range that was set by hand. Of norms about zero also those whose gain and shift
// are rows of constant tables; in 8 bits what is written there needs a range of its own (gained_value). Contract: the
// graph is canonical; options name a target.
Result<std::set<std::string>> foldable_norms(Graph graph, const QuantizeOptions& options, const RowOffsets& offsets);
// Folds the norms of `folded`; those of `plain` stay kernels that only divide by the deviation, over the same weights
// and biases: an engine whose plans fold different norms stores its weights once. Contract: as foldable_norms found
// them, in this graph or one of another batch; types are not given yet.
Status fold_norms(Graph& graph, const std::set<std::string>& folded, const std::set<std::string>& plain);

// The value of a plain norm, whose range is another than that of the norm's result in the model.
inline std::string plain_value(const std::string& value) { return value + ".plain"; }
// What is multiplied in the place of a modulated norm's result: x times gain, not divided by the deviation.
inline std::string gained_value(const std::string& value) { return value + ".gained"; }
// The results of norms that stand where a norm may be folded, for any target and precision: those with constant gain
// and shift, which plans may have as plain norms, and those whose gain changes with time.
std::vector<std::string> norms_between_layers(const Graph& graph);
std::vector<std::string> modulated_norms(const Graph& graph);

}  // namespace tessera
