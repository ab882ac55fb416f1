// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: the first 2r numbers of each head are r pairs, each turned by its token's angle; the rest
// pass through.
//   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin
// attr `interleaved`: 0 (default): pair i is (i, i + r), the halves of what rotates; 1: it is (2i, 2i + 1), neighbours.
// x, y [b, s, heads, d]; cos and sin [1 or b, s, r], 1 <= r <= d / 2. Inputs may have any strides; y is dense.
#pragma once

#include "op/op.h"

namespace tessera {

struct RotaryProblem {
  int64_t batch = 0, tokens = 0, heads = 0, head_size = 0;
  int64_t pairs = 0;  // r
  bool interleaved = false;
  Shape x_strides;                 // elements, per axis of x
  Shape cos_strides, sin_strides;  // per batch (0: one for all), token, pair
  QuantType x, cos, sin, y;
  const Program* then = nullptr;

  static RotaryProblem of(const Problem& p);
  // Where the two numbers of pair i stand in a head.
  int64_t first(int64_t i) const { return interleaved ? 2 * i : i; }
  int64_t second(int64_t i) const { return interleaved ? 2 * i + 1 : i + pairs; }
};

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> rotary_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                  const Roundings& roundings);

}  // namespace tessera
