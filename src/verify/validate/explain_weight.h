// SPDX-License-Identifier: Apache-2.0
// Why a stored weight is not the model's: codes swapped in their bytes, scales transposed, along the other axis, too
// large or too small, another layer's numbers. For a weight of which it is known that it is wrong
// (validate_constants.h).
#pragma once

#include <span>
#include <string>

#include "op/problem.h"

namespace tessera {

// `what`: "weight"; `outside`: the share of its numbers that are not stored as the code that they round to.
std::string explain_weight(const TensorView& stored, std::span<const double> exact, const std::string& what,
                           double outside);

}  // namespace tessera
