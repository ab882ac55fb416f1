// SPDX-License-Identifier: Apache-2.0
// v *= g[col] (layer scale)
#pragma once

#include "steps/functor.h"

namespace tessera {

template <>
struct StepFunctor<StepKind::scale> {
  TS_HOST_DEVICE static float apply(float v, float g, const StepArgs&) { return v * g; }
};

}  // namespace tessera
