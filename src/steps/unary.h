// SPDX-License-Identifier: Apache-2.0
// Functions of one number in f64, which the steps act and gate and the op map refer to, and how errors go through them.
// In f32: scalar.h.
#pragma once

#include "ir/program.h"

namespace tessera {

double apply(Unary fn, double x);

// How far fn of fp32 arithmetic may be from y = fn(x), where x may be off by e: what fn makes of that, eight units of
// the result, four of the argument for the functions whose formula cancels (steps/scalar.h, tiles/cpu/math.h), and
// activation_error, relative to the argument, where a kernel states one (Arithmetic).
double unary_error(Unary fn, double x, double y, double e, double activation_error);

}  // namespace tessera
