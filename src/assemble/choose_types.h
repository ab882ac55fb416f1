// SPDX-License-Identifier: Apache-2.0
// `tessera build --precision auto`: a precision per layer from what the samples of --calib show, among those that the
// target runs.
#pragma once

#include "assemble/build_engine.h"
#include "calibrate/calibrate.h"
#include "compile/compile.h"

namespace tessera {

// `graph`: with the batch of calibration. `how`: the samples, and how ranges follow from them. `lowering`: what the
// user asked for.
Result<AutoChoice> choose_types(const Graph& graph, const BuildOptions& options, CalibrateOptions how,
                                const LowerOptions& lowering);

}  // namespace tessera
