// SPDX-License-Identifier: Apache-2.0
// Weights of several linear layers in one matrix, row after row, with the vectors that go with them: what passes share
// that make one matmul of layers which read the same x (lower/fuse_gate.h, lower/join_layers.h). Codes and scales of
// every row stay what they are. What is made is shared by all graphs of the model (ir/derived_constants.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// Rows of one layer's weight; of its vectors the same entries.
struct LayerRows {
  const Node* layer;
  int64_t first, count;
};
LayerRows all_rows(const Graph& graph, const Node& layer);

// A linear layer with one matrix whose scales, if any, are of the tensor or of its rows.
bool has_rows(const Graph& graph, const Node& layer);
// Layers of the same x, asked for in the same precision, whose weights and results have the same types and whose
// vectors of one kind have one element. One scale of the whole weight must be the same number in both: a scale per row
// in its place would be another type than was asked for.
bool fit_together(const Graph& graph, const Node& a, const Node& b);

// Whether their vectors can be one, too: constants, or what lies side by side in a row that is made while running.
// `producers`: Graph::producers().
bool vectors_fit_together(const Graph& graph, const std::vector<int>& producers, std::span<const LayerRows> rows);

bool same_bytes(const Bytes& a, const Bytes& b);

// "gate+up"; a name that follows itself counts once.
std::string join_names(std::span<const std::string> names);
ValueId join_weights(Graph& graph, std::span<const LayerRows> rows);
// The vectors of a step (bias, scale); a layer that has no such step gets what changes nothing: 0 or 1. Of a row that
// is made while running: a view, which is appended to `nodes`. Contract: one of them has it, and they fit together.
ValueId join_vectors(Graph& graph, std::span<const LayerRows> rows, StepKind kind, std::vector<Node>& nodes);

}  // namespace tessera
