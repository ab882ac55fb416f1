// SPDX-License-Identifier: Apache-2.0
// Prepack: a constant operand brought from dense rows into the layout that a variant wants. The plan does it at build;
// tests and the timing of single kernels do the same.
#pragma once

#include "base/buffer.h"
#include "op/problem.h"

namespace tessera {

struct Prepacked {
  Buffer codes, scales;  // empty: they stay in rows
};

// `o` names the layout; `codes` and `scales` (the first level, null where there is none) lie in dense rows. Fails where
// the numbers do not fit it: a weight that is not 2:4 sparse.
Result<Prepacked> prepack(const Operand& o, const void* codes, const void* scales);

// The matrix of an operand's block scales: [rows, blocks of a row]. Contract: the first level covers blocks.
Shape block_scales_shape(const Operand& o);

}  // namespace tessera
