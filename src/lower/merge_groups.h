// SPDX-License-Identifier: Apache-2.0
// Convolutions whose groups are too small for every kernel of the target (ResNeXt's 32 groups of four channels, where
// tensor cores want multiples of 16 bytes and of 32 results) take as few groups as one as help: rows of the weight get
// zeros at the channels of the others. What remains odd is for lower/pad_products.h.
// No more than 64 become one, and none where no kernel runs the layer then. For a CPU, whose kernels take any group, as
// many become one as fill a panel of 16 results.
// Error: none, zeros are exact in every type; but an infinity or a NaN of a channel reaches all results of the groups
// that are one.
#pragma once

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// Contract: types are given (precision/quantize.h). `carrier`: of values without scales, as rewrite/unfuse.h asks it.
Status merge_groups(Graph& graph, Arch target, Element carrier);

}  // namespace tessera
