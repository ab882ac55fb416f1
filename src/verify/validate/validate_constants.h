// SPDX-License-Identifier: Apache-2.0
// Constants of a plan beside those of the model, number by number. Nothing is left to a share or a tolerance: each code
// is the one that its number rounds to under its scale, each scale is the one that the type's rule gives
// (types/quantize_array.h), and a number beyond the largest code is stored as that code.
//   code in [round((w - e) / s), round((w + e) / s)]      s as stored; e: the quotient's rounding in fp32, 2^-22 |w|
// Where two codes are as near as fp32 can tell, either will do.
#pragma once

#include <string>
#include <vector>

#include "op/problem.h"

namespace tessera {

struct Counterpart {
  std::string what;  // "weight", "bias", "gain"
  Shape shape;
  std::vector<double> numbers;  // in row order
  // They are codes of a type with scales already (imported, or refined: precision/refine.h): nothing is rounded any
  // more.
  bool rounded = false;
  // Several numbers of the model in one (a folded norm): made in f32 by the pass, in f64 here.
  bool derived = false;
};

// What is wrong with a stored constant, in words; empty where nothing is.
//   "bias 17 is stored as 0, the model has 0.0312"     "rows 5 and 9 of its weight are swapped"
//   "its stored weight is off by 1 of its size, 98 % of it beyond its rounding: its scales are 4x too large"
std::string misfit(const TensorView& stored, const Counterpart& model);

}  // namespace tessera
