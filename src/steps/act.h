// SPDX-License-Identifier: Apache-2.0
// v = f(v), f named by the step: steps/scalar.h
#pragma once

#include "steps/functor.h"
#include "steps/scalar.h"

namespace tessera {

template <>
struct StepFunctor<StepKind::act> {
  TS_HOST_DEVICE static float apply(float v, float, const StepArgs& args) { return apply_unary(args.fn, v); }
};

}  // namespace tessera
