// SPDX-License-Identifier: Apache-2.0
// A gated MLP's first half, f(x wg^T + bg) * (x wu^T + bu), becomes one matmul with a `gate` step (ir/steps.inc), and a
// copy that rounds its product to codes the `quantize` step after it. Two forms:
//   two layers of the same x, an activation on one, the product of both; the matmul has both names, "gate+up"
//   one layer whose result is cut into halves, an activation on one of them, their product
// Only where both layers were asked for and have the same types, so that each is what it would be alone: weights keep
// their codes and scales, one row each; and where a kernel of the target runs such a matmul. Error: the roundings of
// both halves and of their product are saved, none is added.
// Contract: types are given (precision/quantize.h), views are merged.
#pragma once

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status fuse_gate(Graph& graph, Arch target);

}  // namespace tessera
