// SPDX-License-Identifier: Apache-2.0
// What a user may change where layers cannot run as asked. Every suggestion is tried first: what is said leads to a
// plan.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compile/compile.h"

namespace tessera {

// Lines to follow the refusal, each after a line break. `runs`: whether the graph has a plan with these options.
std::string advise(const Graph& graph, const LowerOptions& options, const std::vector<RefusedLayer>& failures,
                   const std::function<bool(const Graph&, const LowerOptions&)>& runs);

}  // namespace tessera
