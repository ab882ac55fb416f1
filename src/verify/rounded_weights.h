// SPDX-License-Identifier: Apache-2.0
// A file that rounds the weights of attention (the softmax, under the scale 1 / 448) rounds them after they were
// divided by their sum; attention rounds them before (ops/attention/attention.h). The two roundings cannot be compared
// number by number, so the passes of such a model are judged without this rounding, on both sides.
#pragma once

#include "ir/graph.h"

namespace tessera {

// Whether the canonical graph has attention that rounds its weights because the file says so.
bool rounds_weights(const Graph& canonical);

// The model as imported, and its canonical graph.
Graph without_rounded_weights(const Graph& written);
Graph with_plain_attention(const Graph& canonical);

}  // namespace tessera
