// SPDX-License-Identifier: Apache-2.0
// Engines of one graph each become one engine: constants are stored once, states of one name are one state, plans and
// golden values stay each graph's own.
#pragma once

#include "base/status.h"
#include "plan/engine.h"
#include "plan/make_plan.h"

namespace tessera {

// A plan over constants of its own becomes one over the pool's.
Plan adopted(Plan plan, const std::vector<EngineConstant>& constants, ConstantPool& pool);

// Contract: at least one; the plans of each are of one graph, whose name no other has. Golden plans of the first keep
// their names, those of the others are called "golden.GRAPH". An error where states of one name differ.
Result<Engine> join_engines(std::vector<Engine> engines);

}  // namespace tessera
