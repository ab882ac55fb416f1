// SPDX-License-Identifier: Apache-2.0
// Learnt rows (a class token) joined to the rows of a linear layer, then positions added to all:
//   concat(c, x w^T + b) + p  =  concat(0, x) w^T + r,      r = concat(c, b) + p, a constant of one row per token
// The layer makes the whole token matrix, and its residual step adds what is learnt; the concat moves to x, where
// patches had to be copied out of the image anyway. Only where x is such a copy and the learnt rows are the same for
// every image. Changes no number but by the order of f32 sums. Contract: fused (fuse.h), views are merged.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status concat_before_matmul(Graph& graph);

}  // namespace tessera
