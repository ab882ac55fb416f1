// SPDX-License-Identifier: Apache-2.0
// Scales that an engine stores, held against what a scale may be: positive and finite, one for each group of codes,
// and read by a layer. (A scale that is made while running may be whatever its numbers make it.)
#pragma once

#include "base/status.h"
#include "plan/engine.h"

namespace tessera {

// Contract: every index, offset and size of the engine is in range. The error names the layer that reads the scales.
Status check_scale_numbers(const Engine& engine);

}  // namespace tessera
