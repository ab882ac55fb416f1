// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary positions: angle = position * base^(-2i / head), i = 0 .. head / 2 - 1. Some programs
// round the frequencies base^(-2i / head) to bf16 before they multiply.
#pragma once

#include "models/layer_builder.h"

namespace tessera {

struct RotaryFrequencies {
  int64_t head;
  double base;
  bool bf16 = false;  // rounded to it
};

struct RotaryAngles {
  ValueId cos, sin;
};

// Of positions 0 .. count - 1, as constants [1, count, head / 2].
RotaryAngles fixed_angles(Graph& graph, int64_t count, const RotaryFrequencies& frequencies);
// Of `tokens` positions that begin at `first` (i32 [b]), read while running from tables of `count` positions:
// [b, tokens, head / 2].
Result<RotaryAngles> angles_from(LayerBuilder& layers, ValueId first, int64_t tokens, int64_t count,
                                 const RotaryFrequencies& frequencies);

}  // namespace tessera
