// SPDX-License-Identifier: Apache-2.0
// Elementwise: y = f(a), y = f(a, b) or y = where(c, a, b), operands broadcast as in numpy (aligned at the last axis).
// attr `fn` names f. Unary names are those of ir/unary.inc; binary: add sub mul div pow min max equal less less_equal
// greater greater_equal and or mod; ternary: where. Integers divide towards zero (by zero: 0) and their mod has the
// divisor's sign; floats' mod has the dividend's. Comparisons, and, or give u8 0 or 1. min and max of a NaN are NaN;
// round is to nearest even.
#pragma once

#include <string>

#include "op/op.h"

namespace tessera {

struct MapProblem {
  std::string fn;
  Shape shape;                 // of the result
  std::vector<Shape> strides;  // per input, over the result's axes, 0 where broadcast
  std::vector<QuantType> in;
  QuantType y;

  static MapProblem of(const Problem& p);
  // The same with axes of size 1 dropped and neighbours merged wherever every operand allows it.
  MapProblem merged() const;
};

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> map_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                               const Roundings& roundings);
int64_t map_terms(const Problem& p);  // OpInfo::terms

}  // namespace tessera
