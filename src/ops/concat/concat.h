// SPDX-License-Identifier: Apache-2.0
// y = the inputs one after the other along attr `axis` (negative: from the back); all other axes agree. Any number of
// inputs, any strides. A number that passes through keeps its value: types may differ, each is converted to y's.
// attr `block`, where it is there, holds y's sizes from `axis` on (those before it are the input's with the fewest
// axes). Inputs may then have y's axes split further, [b,14,14,3,16,16] for [b,196,768], so that the patches of an
// image are joined to other rows straight from the image; some first axes of each make up y's before `axis`.
#pragma once

#include "op/op.h"

namespace tessera {

struct ConcatProblem {
  struct Piece {
    Shape shape, strides;  // of the input
    Shape y_strides;       // of y, over the same axes
    int64_t y_offset = 0;  // where its first element goes
    QuantType type;
  };
  int64_t axis = 0;           // never negative
  Shape shape;                // of y, which is dense
  std::vector<Piece> pieces;  // in the order of the inputs
  QuantType y;

  static ConcatProblem of(const Problem& p);
};

}  // namespace tessera
