// SPDX-License-Identifier: Apache-2.0
// Times of a plan on a chip that is not here, from the chip's data (archs/chips.inc) alone:
//   time of a step = max(flops / rate of its precision, bytes / bandwidth)
// That is a lower bound of what a kernel can take: launches, waves that are not full and what overlaps are not in it.
#pragma once

#include <string>

#include "archs/chip.h"
#include "base/status.h"
#include "plan/engine.h"
#include "traces/profile.h"

namespace tessera {

// A chip by its whole name or a part that only one has, in upper or lower case. The error lists them.
Result<const Chip*> pick_chip(const std::string& name);

Ceilings ceilings_of(const Chip& chip);

// A profile whose times are predicted, and say so. Plans of an arch that the chip does not run are an error. `path`: of
// the engine's file; empty: not told.
Result<Profile> predict_plan(const Engine& engine, const Plan& plan, const Chip& chip, const std::string& path = "");

}  // namespace tessera
