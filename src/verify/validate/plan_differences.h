// SPDX-License-Identifier: Apache-2.0
// How a step of a plan differs from the layer of the model that it computes, types erased, in words that name the
// attribute, the step of the program or the operand. Steps that do not differ compute the same.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "plan/plan.h"
#include "verify/validate/model_values.h"
#include "verify/validate/plan_memory.h"

namespace tessera {

using Reads = std::vector<std::optional<ReadPlace>>;  // per operand; nothing for constants and absent ones

// A number that both state and that is not the same, however little it changes: "eps is 0, the model has 1e-06". Of a
// folded norm too. Empty where there is none.
std::string different_number(const ModelValues& model, const PlanStep& step, const Node& layer);

// "it computes matmul then bias where the model has matmul then bias gelu_erf", "its residual is 'a', the model has
// 'b'". Empty: none.
std::string difference(const ModelValues& model, const Plan& plan, const PlanStep& step, const Node& layer,
                       const Reads& reads);

// "matmul then bias gelu_erf", quantize left out.
std::string words_of(const std::string& op, const Attrs& attrs, const Program& then);

}  // namespace tessera
