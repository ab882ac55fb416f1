// SPDX-License-Identifier: Apache-2.0
// Neighbouring steps of few rows become one launch: phases of a persistent kernel (tiles/sm90/chain/chain.cuh). A step
// may get another variant by it, with the same storage of its operands.
#pragma once

#include "plan/plan.h"

namespace tessera {

// Fewer steps are faster as kernels of their own: a chain takes some microseconds to begin and to end.
inline constexpr size_t kFewestPhases = 4;

// Contract: every tensor is placed.
void form_chains(Plan& plan);

}  // namespace tessera
