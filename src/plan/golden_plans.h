// SPDX-License-Identifier: Apache-2.0
// Which golden plan a plan is held against. Golden plans run on `ref` and come after all others; each stands for the
// plans whose steps are its own, whatever their batch: plans that fuse differently have golden plans of their own. The
// first is called "golden", the others "golden." and a plan of theirs.
#pragma once

#include <vector>

#include "plan/engine.h"

namespace tessera {

bool is_golden(const Plan& plan);
std::vector<const Plan*> golden_plans(const Engine& engine);
// The first; null where the engine has none.
const Plan* golden_plan(const Engine& engine);
// The one that a plan is held against, itself where it is one; null where it is not there.
const Plan* golden_plan(const Engine& engine, const Plan& plan);
// What is held against a golden plan.
std::vector<const Plan*> plans_of(const Engine& engine, const Plan& golden);
// What a golden plan gave; null where the engine holds no golden values.
const GoldenForm* golden_form(const Engine& engine, const Plan& golden);
// Whether there are values that the plan is held against; of an engine of many buckets only the smallest plans of each
// graph may have some (BuildOptions::golden_of).
bool has_golden_values(const Engine& engine, const Plan& plan);

// Whether two plans have the same steps, in the same types: only sizes and kernels may differ.
bool same_form(const Plan& a, const Plan& b);

}  // namespace tessera
