// SPDX-License-Identifier: Apache-2.0
// A model whose inputs and outputs do not all begin with one batch (a timestep without axes, positions [24] beside
// images, five captions beside one image) is one sample as it stands: each of them gets an axis of 1 in front, which
// views take away again inside. Changes no number.
#pragma once

#include "ir/graph.h"

namespace tessera {

// Whether all inputs and outputs have a first axis, of one size.
bool share_batch(const Graph& graph);
void make_one_sample(Graph& graph);

}  // namespace tessera
