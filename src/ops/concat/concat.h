// SPDX-License-Identifier: Apache-2.0
// y = the inputs one after the other along attr `axis` (negative: from the back); all other axes agree. Any number of
// inputs, any strides. A number that passes through keeps its value: types may differ, each is converted to y's.
#pragma once

#include "ops/op.h"

namespace tessera {

struct ConcatProblem {
  struct Piece {
    int64_t begin = 0;     // first index of y along the axis
    Shape shape, strides;  // of the input
    QuantType type;
  };
  int64_t axis = 0;           // never negative
  Shape shape;                // of y, which is dense
  std::vector<Piece> pieces;  // in the order of the inputs
  QuantType y;

  static ConcatProblem of(const Problem& p);
};

}  // namespace tessera
