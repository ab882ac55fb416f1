// SPDX-License-Identifier: Apache-2.0
// An attention that no kernel of the target takes because of its head size (18 in fp16, 72 in FP8) runs with zeros
// behind each head: they add nothing to scores, and the result's extra columns are zeros. The scale is an attribute and
// stays. What makes q, k and v pays nothing where it is a linear layer whose result only this attention reads: its
// weight gets the rows of zeros, and the next linear layer the columns. Rotary and copies on the way pass zeros on.
// Anything else (norms of heads, a cache, an input) is padded by a copy, and a result that is not read by linear layers
// alone is cut by one.
// Only attention that every kernel refuses is touched, with the smallest heads that one takes.
// Error: none, zeros are exact in every type.
#pragma once

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// Contract: types are given (precision/quantize.h).
Status pad_heads(Graph& graph, Arch target);

}  // namespace tessera
