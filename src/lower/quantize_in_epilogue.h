// SPDX-License-Identifier: Apache-2.0
// Codes of a result that has readers in other types too: where the layer that makes it writes moments beside it
// (lower/fold_norms.h) and a kernel of the target writes codes there as well, the separate quantizing copy is removed.
// Changes no number but by a rounding: codes are made of the f32 result, not of its 16 bits.
#pragma once

#include "archs/arch.h"
#include "ir/graph.h"

namespace tessera {

void quantize_in_epilogue(Graph& graph, Arch target);

}  // namespace tessera
