// SPDX-License-Identifier: Apache-2.0
// What is wrong with an activation's scales, in words, from its codes and from the numbers that they stand for: scales
// that are too small (codes saturate) or too large (codes are zero). Weights: validate_constants.h.
#pragma once

#include <span>
#include <string>

#include "op/problem.h"

namespace tessera {

struct Finding {
  std::string text;    // "activation scale 40x too small, 61 % of codes saturate"; empty: nothing was found
  bool fault = false;  // no calibration or clipping of sense does this: the build stops
  bool of_weight = false;
  bool of_calibration = false;  // a scale that other data would have made otherwise
};

// An activation in codes, or a result in a narrow float type, beside the numbers of its f32 model: a code is saturated
// where its number lies beyond the largest code. Where `exact` is empty the numbers are not known. The largest code may
// be right then, as it is of the amax itself, so a quarter of all codes must be the largest, and it is never a fault.
Finding judge_activation(const TensorView& t, std::span<const float> exact);

// An activation whose scale the model itself states: what it does to its numbers is part of the model, and worth a note
// where it would be a fault of ours.
Finding judge_stated(const TensorView& t);

// A weight alone: codes that leave most of the element's range unused.
Finding judge_codes(const TensorView& stored);

}  // namespace tessera
