// SPDX-License-Identifier: Apache-2.0
// Models keep the channels of images before their pixels, convolutions have them last. Maps and concats of a result
// that is viewed with its channels first work in the order in which it lies, and their own results are viewed so:
// between convolutions no copy changes the order. Only in graphs with a conv2d. Contract: views are merged, no dead
// nodes.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status keep_channels_last(Graph& graph);

}  // namespace tessera
