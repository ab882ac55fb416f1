// SPDX-License-Identifier: Apache-2.0
// Ops that multiply x, operand 0, by w, operand 1, whose rows are output channels: with a constant w they are layers,
// for which a precision is asked. They run a program after their sums.
#pragma once

#include <string_view>

namespace tessera {

constexpr bool multiplies_weights(std::string_view op) { return op == "matmul" || op == "conv2d"; }

}  // namespace tessera
