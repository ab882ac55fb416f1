// SPDX-License-Identifier: Apache-2.0
// An attention that no kernel of the target runs (heads of a thousand columns: channels that attend to one another over
// all pixels, as in DaViT, Florence-2 and XCiT) becomes what it stands for: a product with the scale in its program,
// softmax, and a second product. Only where operands are plain floats and kernels then run all of it; one with a bias
// (whose sum attention rounds once, in f32), codes, a device-side length, a causal mask or fewer key heads stays, and
// the plan says why.
// Error: scores and weights are rounded to the carrier between the nodes, as op by op.
#pragma once

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// Contract: types are given (precision/quantize.h), views are merged.
Status spell_attention(Graph& graph, Arch target);

}  // namespace tessera
