// SPDX-License-Identifier: Apache-2.0
// `tessera build --precision auto`: build_engine that also says what was chosen for each layer, and what that cost and
// saved. BuildOptions::min_cosine is what the choice reaches (default 0.999) instead of the gate of the golden values.
#pragma once

#include "assemble/build_engine.h"
#include "sensitivity/auto_precision.h"

namespace tessera {

// `chosen` stays empty for every other precision.
Result<Engine> build_engine(const BuildOptions& options, BuildTimes* times, bool* ran_on_target, ModelReport* report,
                            AutoChoice* chosen);

}  // namespace tessera
