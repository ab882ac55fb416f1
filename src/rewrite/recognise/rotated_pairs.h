// SPDX-License-Identifier: Apache-2.0
// Reads a value as what rotary makes of another one, whatever slices, concatenations, negations, products and sums
// spell it. Every number of a head is worked out as a sum of terms
//   sign * x[from] * table[at]        (or sign * x[from])
// and then compared with y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin.
#pragma once

#include <optional>
#include <vector>

#include "rewrite/edit/match.h"

namespace tessera {

// Cosines or sines: number i of a token is number at[i] of the last `tail` axes, flattened, of this value. Its axes
// before those broadcast against x's.
struct AngleTable {
  ValueId value = kNoValue;
  size_t tail = 0;
  std::vector<int64_t> at;
};

struct TurnedPairs {
  Place x;  // [lead..., d], as the value that was read
  bool interleaved = false;
  AngleTable cos, sin;
};

// y has `shape` = [lead..., d], or lies so but for its last axis being several.
std::optional<TurnedPairs> find_turned_pairs(const Graph& graph, const Matcher& matcher, ValueId y, const Shape& shape);

}  // namespace tessera
