// SPDX-License-Identifier: Apache-2.0
// The mean of normalised rows (the tokens of an image, before its head) becomes one pooled norm, and a copy that rounds
// the mean to codes its `quantize` step:
//   copy(reduce(norm(x), mean over rows))  =  norm(x) {pooled=1} then quantize
// Only where the norm's result has no other reader, and a kernel of the target runs such a norm. The rows may be some
// of those that were normalised: the others are not read any more. Error: the roundings of the norm's result, and of
// the mean before its codes, are saved, none is added. Contract: types are given (precision/quantize.h), views are
// merged.
#pragma once

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status pool_norms(Graph& graph, Arch target);

}  // namespace tessera
