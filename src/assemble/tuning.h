// SPDX-License-Identifier: Apache-2.0
// The table of times that a build chooses kernels by: the committed one, a file's, or a file's after `--tune` has timed
// what it lacks.
#pragma once

#include "assemble/build_engine.h"
#include "base/status.h"
#include "compile/compile.h"
#include "plan/tune_cache.h"

namespace tessera {

// The table to lower with; null: none. Without --tune it is the same on every machine. `own` holds a file's, and what
// --tune adds to it.
Result<const TuningTable*> load_tuning(const BuildOptions& options, TuningTable& own);

// Says which of a file's times are of tile shapes that no kernel has for the plan's problems. Contract: a CUDA plan.
void warn_of_unknown_tiles(const Plan& plan, const TuningTable& table);

// Times what `table` lacks for the plan of this graph, and writes the file. Contract: load_tuning was fine,
// options.tune is set.
Status tune_graph(const Graph& graph, const LowerOptions& lowering, const BuildOptions& options, TuningTable& table);

}  // namespace tessera
