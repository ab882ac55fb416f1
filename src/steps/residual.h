// SPDX-License-Identifier: Apache-2.0
// v += r[row mod rows of r, col]
#pragma once

#include "steps/functor.h"

namespace tessera {

template <>
struct StepFunctor<StepKind::residual> {
  TS_HOST_DEVICE static float apply(float v, float r, const StepArgs&) { return v + r; }
};

}  // namespace tessera
