// SPDX-License-Identifier: Apache-2.0
// v += b[col]
#pragma once

#include "steps/functor.h"

namespace tessera {

template <>
struct StepFunctor<StepKind::bias> {
  TS_HOST_DEVICE static float apply(float v, float b, const StepArgs&) { return v + b; }
};

}  // namespace tessera
